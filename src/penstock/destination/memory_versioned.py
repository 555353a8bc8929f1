"""``memory-versioned``: the reference member of the versioned family, for tests and as an example.

Its documents live in a SQLite file that driver and executors share, each as one row with a body of
JSON. What it does with versions and tokens is what a search engine or a key-value store does.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from penstock.destination.contract import Capabilities, DestinationOptions
from penstock.destination.families.target import Target
from penstock.destination.families.versioned.destination import VersionedDestination
from penstock.destination.families.versioned.documents import (
    HEAD,
    DocumentStore,
    Mask,
    aligned,
    document_schema,
    is_before,
    version_is_below,
)
from penstock.destination.sqlite_file import SqliteLedger, connect, transaction
from penstock.model.array_text import first_element
from penstock.model.lsn import Position
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TableDefinition

_TABLES = """
CREATE TABLE IF NOT EXISTS documents (
  pipeline, oid, id, commit_lsn INTEGER, ordinal INTEGER, deleted, body,
  PRIMARY KEY (pipeline, oid, id)
);
CREATE TABLE IF NOT EXISTS floors (
  pipeline, oid, commit_lsn INTEGER, ordinal INTEGER, PRIMARY KEY (pipeline, oid)
);
"""
_PUT = """
INSERT INTO documents VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET commit_lsn = excluded.commit_lsn, ordinal = excluded.ordinal,
       deleted = excluded.deleted, body = excluded.body
"""
_RAISE_FLOOR = """
INSERT INTO floors VALUES (?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET commit_lsn = excluded.commit_lsn, ordinal = excluded.ordinal
"""
_IF_NEWER = " WHERE (excluded.commit_lsn, excluded.ordinal) > (commit_lsn, ordinal)"
_ONE = " WHERE pipeline = ? AND oid = ? AND id = ?"
_TABLE = " WHERE pipeline = ? AND oid = ?"


@dataclass(frozen=True)
class SqliteDocuments(DocumentStore):
    """Opens the file for each call: a reference may be slow."""

    path: Path
    pipeline: str

    def put(self, target: Target, documents: pa.Table) -> None:
        with self._transaction() as conn:
            floor = self._floor(conn, target)
            for row in documents.to_pylist():
                if (row["commit_lsn"], row["ordinal"]) < floor:
                    continue
                body = {name: row[f"c{index}"] for index, name in enumerate(target.columns)}
                head = [row[name] for name in HEAD.names]
                values = [self.pipeline, target.oid, *head, json.dumps(body)]
                conn.execute(_PUT + _IF_NEWER, values)

    def fetch(self, target: Target, keys: pa.Table) -> pa.Table:
        with self._transaction() as conn:
            found = [
                row
                for key in keys["id"].to_pylist()
                for row in conn.execute(
                    "SELECT id, commit_lsn, ordinal, deleted, body"  # noqa: S608
                    f" FROM documents{_ONE}",
                    [self.pipeline, target.oid, key],
                )
            ]
        rows: list[dict[str, Any]] = []
        for *head, body in found:
            values = json.loads(body)
            texts = {f"c{n}": values.get(name) for n, name in enumerate(target.columns)}
            named = dict(zip(HEAD.names, head, strict=True))
            rows.append({**named, "deleted": bool(named["deleted"]), **texts})
        return pa.Table.from_pylist(rows, schema=document_schema(target))

    def is_passed(self, target: Target, documents: pa.Table) -> Mask:
        there = aligned(documents["id"].combine_chunks(), self.fetch(target, documents))
        with self._transaction() as conn:
            floor = self._floor(conn, target)
        return is_before(documents, floor) | ~version_is_below(there, documents)

    def forget_before(self, target: Target, position: Position) -> None:
        with self._transaction() as conn:
            conn.execute(
                _RAISE_FLOOR + _IF_NEWER,
                [self.pipeline, target.oid, *position],
            )
            conn.execute(
                f"DELETE FROM documents{_TABLE} AND (commit_lsn, ordinal) < (?, ?)",  # noqa: S608
                [self.pipeline, target.oid, *position],
            )

    def _floor(self, conn: sqlite3.Connection, target: Target) -> Position:
        """What is older was truncated."""
        found = conn.execute(
            f"SELECT commit_lsn, ordinal FROM floors{_TABLE}",  # noqa: S608
            [self.pipeline, target.oid],
        ).fetchone()
        return Position(*(found or (0, 0)))

    def _transaction(self) -> AbstractContextManager[sqlite3.Connection]:
        return _Once(self.path)


class _Once:
    """A connection for one transaction."""

    def __init__(self, path: Path) -> None:
        self._conn = connect(path, _TABLES)
        self._transaction = transaction(self._conn)

    def __enter__(self) -> sqlite3.Connection:
        return self._transaction.__enter__()

    def __exit__(self, *error: Any) -> None:
        try:
            self._transaction.__exit__(*error)
        finally:
            self._conn.close()


class MemoryVersionedOptions(DestinationOptions):
    """``path`` is a folder that the driver and all executors see."""

    path: Path


class MemoryVersionedDestination(VersionedDestination):
    """Keeps the current rows of every table as documents; ``read_rows`` reads them."""

    name = "memory-versioned"
    options_model = MemoryVersionedOptions
    capabilities = Capabilities(
        mode="merge",
        exactly_once=True,
        remembers=True,
        atomic=False,
        batch_age=0.1,
        sends_at_once=True,
        older_loses=True,
    )

    @cached_property
    def _conn(self) -> sqlite3.Connection:
        return connect(self.options.path / "documents.sqlite", _TABLES)

    @cached_property
    def ledger(self) -> SqliteLedger:
        return SqliteLedger(self._conn, self.name, self.pipeline)

    @cached_property
    def store(self) -> SqliteDocuments:
        return SqliteDocuments(self.options.path / "documents.sqlite", self.pipeline)

    def create(self, table: TableDefinition, target: Target) -> None:
        """Nothing: documents need no table."""

    def begin_copy(self, table: TableDefinition, target: Target) -> None:
        """A reference may leave those alone that still write: there are none in its tests."""
        self.drop(target)

    def drop(self, target: Target) -> None:
        for table in ("documents", "floors"):
            query = f"DELETE FROM {table}{_TABLE}"  # noqa: S608
            self._conn.execute(query, [self.pipeline, target.oid])

    def alter(self, change: TableChange, before: Target, after: Target) -> None:
        pairs = [(old, new) for old, new in change.columns if new and new.name in after.columns]
        query = f"SELECT body, id FROM documents{_TABLE}"  # noqa: S608
        with transaction(self._conn) as conn:
            for body, key in conn.execute(query, [self.pipeline, after.oid]).fetchall():
                row = json.loads(body)
                news = {
                    new.name: row.get(old.name) if old else first_element(new.missing)
                    for old, new in pairs
                }
                conn.execute(
                    f"UPDATE documents SET body = ?{_ONE}",  # noqa: S608
                    [json.dumps(news), self.pipeline, after.oid, key],
                )

    def close(self) -> None:
        self._conn.close()


def read_rows(folder: Path, pipeline: str, schema: str, name: str) -> list[dict[str, str | None]]:
    """The rows of a table, for whoever compares them."""
    with _Once(folder / "documents.sqlite") as conn:
        notes = SqliteLedger(conn, MemoryVersionedDestination.name, pipeline).read("table/")
        targets = map(Target.from_text, notes.values())
        (oid,) = (t.oid for t in targets if (t.schema, t.name) == (schema, name))
        query = f"SELECT body FROM documents{_TABLE} AND NOT deleted"  # noqa: S608
        return [json.loads(body) for (body,) in conn.execute(query, [pipeline, oid])]
