"""``kafka``: every change as a message, in order lane by lane."""
