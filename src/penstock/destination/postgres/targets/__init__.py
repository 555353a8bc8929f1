"""The tables at the destination: made, compared, changed."""
