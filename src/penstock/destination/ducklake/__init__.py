"""`ducklake`: tables in a DuckLake, merged by DuckDB in the driver."""
