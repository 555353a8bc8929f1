"""Stores of every kind."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from penstock.config import ConnectionUrl
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.store import MemoryStore, PostgresStore, Store
from penstock.store.memory import PipelineRecords
from tests.fix_postgres import drop_database

MakeStore = Callable[..., Store]
"""Opens one more store object on the test's own database; ``pipeline`` names whose."""


@pytest.fixture(params=["memory", "postgres"])
def make_store(request: pytest.FixtureRequest, pg_server: EmbeddedPostgres) -> Iterator[MakeStore]:
    records: dict[str, PipelineRecords] = {}
    with ExitStack() as stack:
        url = ""
        if request.param == "postgres":
            name = f"test_{uuid.uuid4().hex}"
            url = pg_server.create_database(name)
            stack.callback(drop_database, pg_server, name)

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
