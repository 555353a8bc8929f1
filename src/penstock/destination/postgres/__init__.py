"""Postgres as a destination: exactly once, a batch in one transaction."""
