"""Rows of a batch on their way into staging tables."""
