"""A database to replicate into, much cheaper than a new one for each test: it is only emptied."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from psycopg import sql

from penstock.destination.postgres.destination import PostgresDestination
from penstock.destination.postgres.options import PostgresOptions
from penstock.destination.postgres.staging import task_writer
from penstock.destination.postgres.staging.handover import HandoverPlace
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.model.table_definition import TableDefinition

PIPELINE = "shop"


@pytest.fixture(scope="session")
def shared_target(pg_server: EmbeddedPostgres) -> str:
    # It goes with its server.
    return pg_server.create_database(f"target_{uuid.uuid4().hex}")


@pytest.fixture
def target_url(shared_target: str) -> Iterator[str]:
    """The URL of a database that holds nothing but an empty schema public."""
    with psycopg.connect(shared_target, autocommit=True) as conn:
        found = conn.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname !~ '^pg_|^information_schema$'"
        )
        schemas = [sql.Identifier(name) for (name,) in found]
        conn.execute("SET client_min_messages = warning")
        if schemas:
            conn.execute(sql.SQL("DROP SCHEMA {} CASCADE").format(sql.SQL(", ").join(schemas)))
        conn.execute("CREATE SCHEMA public")
    yield shared_target
    end_task_sessions()


@pytest.fixture
def target(target_url: str) -> Iterator[Target]:
    with Target(target_url) as made:
        yield made


def end_task_sessions() -> None:
    """Close the connections that task writers keep in this process."""
    for conn in task_writer._sessions.values():
        conn.close()
    task_writer._sessions.clear()


def tasks_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks do not see the driver's folder, as on other machines: all rows are staged."""
    monkeypatch.setattr(HandoverPlace, "is_here", lambda _place: False)


class Target:
    """A database and the destinations that a test opens in it."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.conn: psycopg.Connection[tuple[Any, ...]] = psycopg.connect(url, autocommit=True)
        self.conn.execute("SET timezone = 'UTC'")
        self._made: list[PostgresDestination] = []

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        for destination in self._made:
            destination.close()
        self.conn.close()

    @property
    def last(self) -> PostgresDestination | None:
        """The destination that was made last."""
        return self._made[-1] if self._made else None

    def make(self, url: str = "", **options: object) -> PostgresDestination:
        model = PostgresOptions.model_validate({"url": url or self.url, **options})
        self._made.append(PostgresDestination(model, PIPELINE))
        return self._made[-1]

    def opened(
        self, *definitions: TableDefinition, url: str = "", **options: object
    ) -> PostgresDestination:
        destination = self.make(url, **options)
        destination.open()
        destination.prepare(definitions)
        return destination

    def execute(self, statement: str) -> None:
        self.conn.execute(statement.encode())

    def all(self, query: str) -> list[tuple[Any, ...]]:
        return self.conn.execute(query.encode()).fetchall()

    def rows(self, table: str, columns: str = "*") -> Counter[tuple[str | None, ...]]:
        """A table's rows as texts, and how many of each."""
        shown = self.conn.execute(f"SELECT {columns} FROM {table}".encode())  # noqa: S608
        names = [sql.Identifier(column.name) for column in shown.description or ()]
        texts = sql.SQL(", ").join(sql.SQL("{}::text").format(name) for name in names)
        inner = sql.SQL(f"SELECT {columns} FROM {table}")  # noqa: S608
        found = self.conn.execute(sql.SQL("SELECT {} FROM ({}) AS r").format(texts, inner))
        return Counter(found.fetchall()) if names else Counter([()] * (shown.rowcount or 0))


def as_texts(table: TableDefinition) -> TableDefinition:
    """The table for rows that come as texts, whatever its columns' types are: what the stream
    announces is not compared with them.
    """
    return replace(table, columns=tuple(replace(c, type_oid=0) for c in table.columns))
