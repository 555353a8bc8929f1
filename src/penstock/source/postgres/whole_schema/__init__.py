"""The source's whole schema, taken with Postgres's own pg_dump."""
