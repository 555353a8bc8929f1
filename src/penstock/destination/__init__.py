"""Where changes go. One contract, one file or folder for each destination."""
