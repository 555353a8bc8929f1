"""Stores of every kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from penstock.config import ConnectionUrl
from penstock.store import MemoryStore, PostgresStore, Store
from penstock.store.memory import PipelineRecords

MakeStore = Callable[..., Store]
"""Opens one more store object on the test's own database; ``pipeline`` names whose."""


@pytest.fixture(params=["memory", "postgres"])
def make_store(request: pytest.FixtureRequest) -> Iterator[MakeStore]:
    records: dict[str, PipelineRecords] = {}
    # Asked for where it is needed: a server is not started for a store in memory.
    url = request.getfixturevalue("database") if request.param == "postgres" else ""
    with ExitStack() as stack:

        def make(pipeline: str = "shop") -> Store:
            store: Store = (
                PostgresStore(ConnectionUrl(url), pipeline)
                if url
                else MemoryStore(pipeline, records)
            )
            stack.enter_context(store).open()
            return store

        yield make


@pytest.fixture
def store(make_store: MakeStore) -> Store:
    return make_store()
