"""Fixtures live in plug-in files named after what they provide."""

import os

from hypothesis import Phase, settings

# Before anything of Penstock is imported, and for the processes that tests start: nobody waits two
# seconds until a look finds what a test has done.
os.environ.setdefault("PENSTOCK_CADENCE", "0.2")

pytest_plugins = [
    "tests.fix_cli",
    "tests.fix_clickhouse",
    "tests.fix_disk",
    "tests.fix_kafka",
    "tests.fix_kinesis",
    "tests.fix_objects",
    "tests.fix_pipeline",
    "tests.fix_postgres",
    "tests.fix_rabbitmq",
    "tests.fix_search",
    "tests.fix_serve",
    "tests.fix_spark",
    "tests.threads_engine",
    "tests.fix_store",
    "tests.fix_target",
    "tests.side_by_side",
    "tests.fix_browser",  # these two use those above
    "tests.fix_changed",
]

# Properties are tried with the same examples in every run, so that what fails is what was changed;
# before a release with more of them. `make fuzz` searches with new ones.
settings.register_profile("push", deadline=None, derandomize=True, max_examples=50)
settings.register_profile("release", deadline=None, derandomize=True, max_examples=200)
settings.register_profile("search", deadline=None, print_blob=True)
# `make sabotage` has no use for the smallest example that fails.
settings.register_profile(
    "unshrunk",
    deadline=None,
    derandomize=True,
    max_examples=50,
    phases=[Phase.explicit, Phase.generate],
)
settings.load_profile(os.environ.get("PENSTOCK_PROPERTIES", "push"))
