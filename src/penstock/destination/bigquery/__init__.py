"""`bigquery`: tables in Google BigQuery, merged from Parquet in Cloud Storage."""
