"""``rabbitmq``: every change as a message to an exchange, in order key by key."""
