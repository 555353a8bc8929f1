"""Statistics: what a pipeline did, and how it stands, for people and for other systems."""
