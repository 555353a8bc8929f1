"""Fixtures live in plug-in files named after what they provide."""

pytest_plugins = ["tests.fix_postgres"]
