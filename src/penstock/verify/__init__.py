"""Source and destination compared, row by row, at one position."""
