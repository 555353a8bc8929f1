"""Postgres as a source: catalogue, subscription, capture, snapshots."""
