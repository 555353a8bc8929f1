"""Copied rows, and changes that are replayed over them."""
