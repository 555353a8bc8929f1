"""The source's whole schema at the destination, made around the copy of its tables."""
