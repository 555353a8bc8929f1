"""``webhooks``: events sent to whoever has subscribed, over HTTP."""
