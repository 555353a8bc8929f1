"""Fixtures live in plug-in files named after what they provide."""

pytest_plugins = [
    "tests.fix_pipeline",
    "tests.fix_postgres",
    "tests.fix_spark",
    "tests.fix_target",
]
