"""The destination `clickhouse`: versioned rows in ReplacingMergeTree tables."""
