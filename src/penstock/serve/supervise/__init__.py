"""Pipelines and long operations as processes of their own."""
