"""What warehouses that are spoken to in SQL share: they take files from an object store."""
