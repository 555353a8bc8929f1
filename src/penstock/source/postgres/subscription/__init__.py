"""Publications and slot: made together, found again, kept to what is asked for."""
