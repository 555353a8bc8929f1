"""Modules that a command which moves no rows has no use for: each costs a part of a second."""

from __future__ import annotations

HEAVY = (
    *("adbc_driver_postgresql", "boto3", "confluent_kafka", "numpy", "pandas", "py4j", "pyarrow"),
    *("pyspark", "sqlglot"),
)

SHOW_HEAVY = f"""
import json, sys
print()
print(json.dumps(sorted({{*sys.modules}} & {{*{HEAVY!r}}})))
"""
"""Code that prints which of them its process has loaded, as the last line."""
