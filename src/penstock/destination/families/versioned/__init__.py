"""Versioned upsert: every write carries its position, and of two the older one loses."""
