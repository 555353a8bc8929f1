"""Rows as documents of OpenSearch or Elasticsearch."""
