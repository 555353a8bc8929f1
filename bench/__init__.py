"""`make bench`: Penstock against pg_recvlogical on one machine. docs/benchmarks.md explains it."""
