"""Several destinations in one command: a process each, and one that starts them."""
