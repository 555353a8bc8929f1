"""One run: capture, query, commits."""
