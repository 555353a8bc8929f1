"""Kafka as a source: topics that Penstock or Debezium wrote, back into a change log."""
