"""What takes events out of the outbox, and sends them."""
