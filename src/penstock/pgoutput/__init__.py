"""The pgoutput wire format: messages as bytes. Knows no sockets."""
