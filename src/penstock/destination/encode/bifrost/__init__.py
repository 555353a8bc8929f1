"""pg-bifrost's JSON."""
