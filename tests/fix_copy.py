"""Copies of tables under a snapshot of now, without a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import psycopg
import pytest

from penstock.config.connection_url import ConnectionUrl
from penstock.model.lsn import Frontier
from penstock.model.table_name import TableName
from penstock.source.postgres.catalogue.definitions import read_definitions
from penstock.source.postgres.snapshot.chunk_reader import SourceChunkReader
from penstock.source.postgres.snapshot.plan import plan_copy
from penstock.source.postgres.snapshot.reading import ExportedSnapshot
from penstock.source.postgres.snapshot.relations import read_relations
from penstock.source.postgres.snapshot.source_session import close_idle_sessions
from tests.application_session import connect

Connection = psycopg.Connection[tuple[Any, ...]]

_ONE_CHUNK = 1 << 40


class Copy:
    """A snapshot of now, and readers under it."""

    def __init__(self, database: str, name: str, where: str | None = None) -> None:
        self.url = ConnectionUrl(database)
        self.point = Frontier(0x50, 0x58)
        self.holder = connect(database, autocommit=False)
        self.holder.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        row = self.holder.execute("SELECT pg_export_snapshot()").fetchone()
        assert row is not None
        self.snapshot_name = row[0]
        conditions = {} if where is None else {f"public.{name}": where}
        # Not by the holder: it would keep what it locks.
        with connect(database) as conn:
            (self.definition,) = read_definitions(conn, [TableName("public", name)], ())
            sources = read_relations(conn, [self.definition], (), conditions)
        self.source = sources.found[self.definition.oid]

    def readers(self, chunk_bytes: int = _ONE_CHUNK) -> list[SourceChunkReader]:
        plan = plan_copy(self.source, chunk_bytes)
        snapshot = ExportedSnapshot(self.snapshot_name, self.point)
        return [
            SourceChunkReader(self.url, self.source.table, chunk, plan.where, snapshot)
            for chunk in plan.chunks
        ]

    def reader(self) -> SourceChunkReader:
        (reader,) = self.readers()
        return reader

    def rows(self, chunk_bytes: int = _ONE_CHUNK) -> list[tuple[str | None, ...]]:
        """All rows as texts."""
        rows: list[tuple[str | None, ...]] = []
        for reader in self.readers(chunk_bytes):
            for part in reader.texts():
                columns = [column.to_pylist() for column in part.columns]
                rows += zip(*columns, strict=True) if columns else [()] * len(part)
        return rows


class Copies(Protocol):
    """Starts a copy of a table of the test's database; its snapshot ends with the test."""

    def __call__(self, name: str, where: str | None = None, url: str | None = None) -> Copy: ...


@pytest.fixture
def copy_of(database: str) -> Iterator[Copies]:
    made: list[Copy] = []

    def start(name: str, where: str | None = None, url: str | None = None) -> Copy:
        made.append(Copy(url or database, name, where))
        return made[-1]

    yield start
    for copy in made:
        copy.holder.close()
    close_idle_sessions()
