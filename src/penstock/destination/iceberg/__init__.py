"""`iceberg`: Iceberg tables, committed by the driver through pyiceberg's catalogues."""
