"""`redshift`: tables in Amazon Redshift, merged from gzip CSV in S3."""
