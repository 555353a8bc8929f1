"""Copies of tables, beside the stream."""
