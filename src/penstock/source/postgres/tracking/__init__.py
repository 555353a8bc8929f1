"""Event triggers that tell of schema changes: their SQL, and how it comes and goes."""
