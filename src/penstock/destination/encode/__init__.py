"""Changes in the forms that destinations send: one file a form."""
