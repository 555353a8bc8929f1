"""The driver's side of a pipeline: supervise capture and the query, commit what tasks wrote."""
