"""``files``: every change once, in Parquet or NDJSON files. See docs/destinations/files.md."""
