"""`snowflake`: tables in Snowflake, merged from gzip CSV in an external stage."""
