"""Servers that come with a package, for demo, tests and bench."""
