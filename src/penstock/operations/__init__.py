"""What can be done to a pipeline, whoever asks: the command line, the API or the page."""
