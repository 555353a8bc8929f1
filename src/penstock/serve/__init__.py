"""`penstock serve`: all pipelines in one place, for people (page) and programs (API)."""
