"""Schema changes in the stream."""
