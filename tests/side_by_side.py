"""Which tests run in one process when pytest-xdist runs several processes side by side.

A test goes to whichever process is free, unless it shares with others what is expensive to start:
a Spark session, a broker, a Kinesis, an analyser. Crash tests are a group as well: each is a
pipeline with a JVM of its own under load, and two of them would fill the machine.

The groups are our own, because those of pytest-xdist 3.8 have no effect under pytest 9.2
(pytest-dev/pytest-xdist issue 1386).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler.loadscope import LoadScopeScheduling

_ROOT = Path(__file__).resolve().parents[1]
_QUEUES = ("kafka", "kinesis", "rabbitmq", "log_storage", "search", "bigquery")
# Begun in this order, before all tests that are in none: the longest first.
_ORDER = ("spark 1", "spark 2", "crash", *_QUEUES)
# Two sessions: one alone would be the longest of all.
_SECOND_SESSION = (
    *("test_debezium", "test_kafka", "test_kinesis", "test_rabbitmq", "test_spark"),
    "test_verify",
)

# The last test of the one judges what the others have seen; those of the other share an archive.
_IN_ORDER = ("test_debezium_golden", "test_cluster")


class Groups(LoadScopeScheduling):  # type: ignore[misc]
    """Takes those of a group for one unit of work."""

    def _split_scope(self, nodeid: str) -> str:
        return group_of(nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Groups | None:
    if config.getvalue("dist") != "loadgroup":
        return None
    config.option.loadscopereorder = False  # by the number of tests: the order below is better
    return Groups(config, log)


@pytest.hookimpl(trylast=True)  # pytest has put together what shares a server
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    group = group_of(item.nodeid)
    return _ORDER.index(group) if group in _ORDER else len(_ORDER)


def group_of(nodeid: str) -> str:
    """The name of a test's group, else its own."""
    path = nodeid.partition("::")[0]
    file = Path(path)
    if file.parent.name == "crash":
        return "crash"
    if file.parent.name == "contract":
        return next((queue for queue in _QUEUES if file.stem.startswith(f"test_{queue}")), nodeid)
    if file.stem in _IN_ORDER:
        return path
    if file.parent.name == "integration" and _takes_a_session(path):
        return "spark 2" if file.name.startswith(_SECOND_SESSION) else "spark 1"
    return nodeid


@cache
def _takes_a_session(path: str) -> bool:
    """Whether a test of the file asks for the shared Spark session."""
    return "SparkSession" in (_ROOT / path).read_text()
