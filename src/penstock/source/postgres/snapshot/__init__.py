"""Copying tables: what to read in which pieces, under which snapshot, and reading a piece."""
