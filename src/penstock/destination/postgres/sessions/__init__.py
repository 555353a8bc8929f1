"""Connections to the destination."""
