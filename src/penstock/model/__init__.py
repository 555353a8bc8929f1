"""The vocabulary: positions, table definitions, schema changes, table states, errors. No I/O."""
