"""`make bench`: Penstock against others on one machine. docs/benchmarks.md explains it."""
