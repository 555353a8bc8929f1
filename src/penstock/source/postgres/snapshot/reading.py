"""A transaction that reads one relation under an exported snapshot, and what can go wrong in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from psycopg import sql

from penstock.config.connection_url import ConnectionUrl
from penstock.model.errors import RowsRefused, SnapshotGone, SourceUnavailable, TableRewritten
from penstock.model.lsn import Frontier
from penstock.model.table_schema import TableSchema
from penstock.source.postgres.snapshot.source_session import (
    ReadSession,
    SessionError,
    transaction,
)

S = TypeVar("S", bound=ReadSession)

Holder = tuple[int, str]
"""The number of a server's session, and when it began: numbers are used again."""


@dataclass(frozen=True)
class ExportedSnapshot:
    """``name`` is the server's, ``at`` its point. ``holder`` is the session that holds it, where a
    server that was restarted may have given the name to another one.
    """

    name: str
    at: Frontier
    holder: Holder | None = None


# What the server answers to a snapshot that nobody holds (any more): by version and cause.
_NO_SNAPSHOT = {"22023", "42704", "55000"}
_TOO_OLD = "72000"
# The table, its schema or a column of it.
_UNDEFINED = {"42P01", "3F000", "42703"}
# Lost or ended connections, no memory or connection left, deadlocks, a cancelled statement.
_PASSING = ("08", "53", "57", "40")


@contextmanager
def reading(
    kind: type[S],
    url: ConnectionUrl,
    table: TableSchema,
    relation: sql.Identifier,
    snapshot_name: str,
    check: Callable[[ReadSession], None],
) -> Iterator[S]:
    """A session that sees the snapshot, and a relation that nobody rewrites meanwhile.

    ``check`` comes between lock and block: a name that is unknown there means that the table is
    another one now, while in the block it may be the fault of a condition.
    """
    begin = sql.SQL(
        "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET TRANSACTION SNAPSHOT {};"
        " LOCK TABLE ONLY {} IN ACCESS SHARE MODE"
    ).format(sql.Literal(snapshot_name), relation)
    begun = False
    try:
        with transaction(kind, url, begin.as_string(None)) as session:
            check(session)
            begun = True
            yield session
    except SessionError as error:
        code, said = error.sqlstate, error.said.rstrip(".")
        if code == _TOO_OLD or (not begun and code in _NO_SNAPSHOT):
            raise snapshot_gone(snapshot_name, said) from error
        if not begun and code in _UNDEFINED:
            raise rewritten(table, said) from error
        doing = f"While reading table {table.qualified_name}"
        if code is None or code.startswith(_PASSING):
            raise SourceUnavailable(
                f"{doing}, the connection to the source was lost: {said}.",
                remedy="Check that the server is up; what was not read is read again.",
            ) from error
        raise RowsRefused(
            f"{doing}, the source refused: {said}.",
            remedy="The message says what it refused: a right that the role lacks, or a `where` of "
            "the pipeline file that does not fit this table.",
            sqlstate=code,
            table=table.oid,
        ) from error


def is_held(holder: Holder | None) -> sql.Composable:
    """Whether that session is there; asked behind the import of what it has exported. Of another
    role's the server may not say when it began.
    """
    if holder is None:
        return sql.SQL("true")
    pid, start = map(sql.Literal, holder)
    return sql.SQL(
        "EXISTS (SELECT FROM pg_catalog.pg_stat_get_activity({}) AS a WHERE a.backend_start IS NULL"
        " OR extract(epoch FROM a.backend_start)::pg_catalog.text = {})"
    ).format(pid, start)


def snapshot_gone(name: str, why: str) -> SnapshotGone:
    return SnapshotGone(
        f"The snapshot {name} that copies read under has ended: {why}.",
        remedy="A new one is taken, and chunks that were not read yet come from it.",
    )


def rewritten(table: TableSchema, what: str) -> TableRewritten:
    return TableRewritten(
        f"Table {table.qualified_name} is not what it was when its copy was planned: {what}.",
        remedy="Its copy starts again by itself.",
        table=table.oid,
    )


def written(text: str) -> sql.SQL:
    """SQL as somebody wrote it: the catalogue, or the pipeline file."""
    return sql.SQL(text)
