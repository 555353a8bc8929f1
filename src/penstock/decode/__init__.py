"""Payloads → Arrow columns, only as far as somebody asks. Knows neither Spark nor sockets."""
