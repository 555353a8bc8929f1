"""What the source's catalogue says of tables and types."""
