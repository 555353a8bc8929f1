"""Staged merge: lakes and warehouses. Executors write files, the driver merges touched tables."""
