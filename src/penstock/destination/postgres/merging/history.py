"""``mode: append``: a table of every change, instead of the rows that are left."""

from __future__ import annotations

from dataclasses import replace

from psycopg import sql

from penstock.destination.contract import SchemaChange
from penstock.destination.encode.commit_time import committed_at
from penstock.destination.postgres.merging.sql_pieces import target
from penstock.destination.postgres.sessions.session import Connection
from penstock.destination.postgres.staging.receipt import Truncated
from penstock.destination.postgres.staging.stage import Stage
from penstock.model.errors import DestinationError
from penstock.model.lsn import format_lsn
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName


def _own(name: str, kind: str, *, array: bool = False) -> ColumnDefinition:
    required = name in ("_op", "_commit_lsn", "_ordinal")
    type_name = TypeName("pg_catalog", kind, is_array=array)
    return ColumnDefinition(0, name, type_name, not_null=required)


COLUMNS = (
    _own("_op", "text"),
    _own("_commit_lsn", "pg_lsn"),
    _own("_ordinal", "bigint"),
    _own("_commit_time", "timestamp with time zone"),
    _own("_xid", "bigint"),
    _own("_unset", "text", array=True),
    _own("_old", "jsonb"),
)
"""What a history has beside the source's columns."""


def is_own(name: str) -> bool:
    return any(column.name == name for column in COLUMNS)


def definition(table: TableDefinition) -> TableDefinition:
    """The history of a table: its columns, all of which may be null, and ours."""
    taken = sorted(column.name for column in table.columns if is_own(column.name))
    if taken:
        raise DestinationError(
            f"table {table.qualified_name} has columns that a history needs for itself: "
            f"{', '.join(taken)}",
            remedy="exclude the table, rename the columns, or use destination.mode: merge",
        )
    plain = tuple(
        replace(
            column,
            not_null=False,
            default=None,
            identity="",
            sequence=None,
            generated=None,
            # What was written before a column came stays without it.
            missing=None,
        )
        for column in table.columns
        if column.is_delivered
    )
    return replace(table.without_keys(), columns=(*plain, *COLUMNS))


def schema_change(change: SchemaChange) -> SchemaChange:
    """What a schema change means for histories: columns that are dropped keep their values there,
    and get no new ones.
    """
    return replace(change, tables=tuple(map(_table_change, change.tables)))


def _table_change(change: TableChange) -> TableChange:
    before = None if change.before is None else definition(change.before)
    after = None if change.after is None else definition(change.after)
    if before is not None and after is not None:
        left = {column.attnum for column in after.columns}
        kept = tuple(column for column in before.columns if column.attnum in left)
        before = replace(before, columns=kept)
    return TableChange(before, after)


def write_truncate(conn: Connection, stage: Stage, event: Truncated) -> None:
    """A row without values in the history of a table that was emptied."""
    at = committed_at(event.commit_micros)
    conn.execute(
        sql.SQL(
            "INSERT INTO {} (_op, _commit_lsn, _ordinal, _commit_time, _xid)"
            " VALUES ('truncate', %s, %s, %s, %s)"
        ).format(target(stage)),
        [format_lsn(event.commit_lsn), event.ordinal, at, event.xid],
    )
