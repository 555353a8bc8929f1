"""Which tables are followed, and where each stands."""
