"""Copies by other processes: what the driver offers them, and what they do."""
