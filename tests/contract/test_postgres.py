"""The contract suite on `postgres`, in both modes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import psycopg
import pytest
from psycopg import sql
from psycopg.rows import dict_row

from penstock.destination.contract import Destination
from penstock.destination.postgres.destination import PostgresDestination
from penstock.destination.postgres.options import PostgresOptions
from penstock.model.lsn import Position, parse_lsn
from penstock.testing import (
    Adapter,
    DestinationContract,
    FrozenRow,
    MemoryChange,
    Row,
    TableName,
    frozen,
    in_commit_order,
)

PIPELINE = "shop.warehouse"  # as one of several destinations has it


_HISTORY_COLUMNS = (
    "_op",
    "_commit_lsn",
    "_ordinal",
    "_commit_time",
    "_xid",
    "_unset",
    "_old",
)


class PostgresAdapter(Adapter):
    keeps_messages = False
    follows_columns = False
    chunk_waits_for_commit = False
    mode: ClassVar[str]

    def __init__(self, database: str) -> None:
        self.database = database
        self._made: list[Destination] = []

    def make(self) -> Destination:
        options = PostgresOptions.model_validate({"url": self.database, "mode": self.mode})
        self._made.append(PostgresDestination(options, PIPELINE))
        return self._made[-1]

    def close(self) -> None:
        for destination in self._made:
            destination.close()

    @contextmanager
    def _reader(self) -> Iterator[psycopg.Connection[dict[str, Any]]]:
        with psycopg.connect(self.database, row_factory=dict_row) as conn:
            conn.execute("SET timezone = 'UTC'")
            yield conn


class PostgresMergeAdapter(PostgresAdapter):
    mode = "merge"
    keeps = "rows"

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        with self._reader() as conn:
            return Counter(map(frozen, _texts(conn, name)))


class PostgresAppendAdapter(PostgresAdapter):
    mode = "append"
    widens_old_rows = True

    def delivered(self) -> list[MemoryChange]:
        return in_commit_order(change for change in self._changes() if change.op != "read")

    def copied(self) -> list[MemoryChange]:
        return [change for change in self._changes() if change.op == "read"]

    def _changes(self) -> list[MemoryChange]:
        with self._reader() as conn:
            histories = conn.execute(
                "SELECT relnamespace::regnamespace::text AS schema, nspname, relname FROM pg_class"
                " JOIN pg_namespace n ON n.oid = relnamespace JOIN pg_attribute ON attrelid ="
                " pg_class.oid WHERE attname = '_commit_lsn' AND relkind = 'r'"
            ).fetchall()
            found = []
            for table in histories:
                name = (table["nspname"], table["relname"])
                found += [_from_history(row, name) for row in _texts(conn, name)]
            return found


def _texts(conn: psycopg.Connection[dict[str, Any]], name: TableName) -> list[Row]:
    """All rows of a table as texts. Arrays as JSON, which is easier to read."""
    columns = [
        (row["attname"], row["is_array"])
        for row in conn.execute(
            "SELECT attname, typcategory = 'A' AS is_array FROM pg_attribute JOIN pg_type t"
            " ON t.oid = atttypid WHERE attrelid = to_regclass(%s) AND attnum > 0"
            " AND NOT attisdropped ORDER BY attnum",
            [sql.Identifier(*name).as_string(None)],
        )
    ]
    selected = sql.SQL(", ").join(
        sql.SQL("to_json({0})::text AS {0}" if is_array else "{0}::text").format(
            sql.Identifier(column)
        )
        for column, is_array in columns
    )
    # A table without columns has rows, too, and psycopg makes empty dicts of them.
    return conn.execute(
        sql.SQL("SELECT {} FROM {}").format(selected, sql.Identifier(*name))
    ).fetchall()


def _from_history(row: Row, name: TableName) -> MemoryChange:
    own = {column: row.pop(column) for column in list(row) if column in _HISTORY_COLUMNS}
    lsn, op, old = own["_commit_lsn"], own["_op"], own["_old"]
    assert lsn is not None
    assert op is not None
    position = Position(parse_lsn(lsn), int(own["_ordinal"] or 0))
    assert (own["_commit_time"] is None) == (op == "read")
    if op == "truncate":
        assert not any(row.values())
        return MemoryChange(position, op, (name,))
    identity = None if old is None else json.loads(old, parse_int=str, parse_float=str)
    if op == "delete":
        assert identity is not None
        assert {column: row[column] for column in identity} == identity
        return MemoryChange(position, op, (name,), None, identity)
    unset = json.loads(own["_unset"] or "[]")
    assert not any(row[column] for column in unset)
    new = {column: text for column, text in row.items() if column not in unset}
    return MemoryChange(position, op, (name,), new, identity)


class TestPostgres(DestinationContract):
    @pytest.fixture(params=[PostgresMergeAdapter, PostgresAppendAdapter], ids=["merge", "append"])
    def adapter(self, request: pytest.FixtureRequest, target_url: str) -> Iterator[Adapter]:
        kind: type[PostgresAdapter] = request.param
        adapter = kind(target_url)
        yield adapter
        adapter.close()
