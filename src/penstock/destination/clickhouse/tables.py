"""Statements that make tables, their views, and new layouts of them. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.destination.clickhouse.changes import ClickHouseLatest
from penstock.destination.clickhouse.names import (
    DELETED,
    ROW,
    VERSION,
    RowsTable,
    key_names,
    listed,
    literal,
    quoted,
)
from penstock.destination.clickhouse.types import (
    column_type,
    held,
    literal_of,
    sql_type,
    text_of,
)
from penstock.destination.families.change_tables.definition import is_change_table
from penstock.destination.families.change_tables.latest import has_latest, latest_query
from penstock.destination.families.target import Target
from penstock.model.array_text import first_element
from penstock.model.errors import TableRefused
from penstock.model.plain_type import TEXT
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import ColumnDefinition

# A row is on the disk when an INSERT returns: else the ledger could outlive the rows before it.
_SETTINGS = "fsync_after_insert = 1, fsync_part_directory = 1"


def create_table(target: Target, table: RowsTable, comment: str) -> str:
    """Rows by key, the latest version of each; without a key, by where they came from.

    Raises TableRefused where a column has the name of one of ours.
    """
    ours = {VERSION, DELETED} | (set() if target.key else {ROW})
    if taken := sorted(ours.intersection(target.columns)):
        raise TableRefused(
            f"table {target.qualified_name}: its column {taken[0]} has a name that `clickhouse` "
            "uses itself",
            remedy="rename the column, or leave it out by source.tables.columns",
            table=target.oid,
        )
    target = held(target)
    columns = [
        f"{quoted(name)} {column_type(target, index)}" for index, name in enumerate(target.columns)
    ]
    if not target.key:
        columns.append(f"{quoted(ROW)} String")
    columns += [f"{VERSION} UInt128", f"{DELETED} UInt8"]
    return (
        f"CREATE TABLE IF NOT EXISTS {table.sql} ({listed(columns)}) "
        f"ENGINE = ReplacingMergeTree({VERSION}, {DELETED}) "
        f"ORDER BY ({listed(map(quoted, key_names(target)))}) "
        f"SETTINGS {_SETTINGS} COMMENT {literal(comment)}"
    )


def create_view(target: Target, table: RowsTable, view: str, comment: str) -> str:
    """What readers see: the latest version of each row, without what was deleted."""
    columns = listed(map(quoted, target.columns)) or quoted(ROW)
    return (
        f"CREATE OR REPLACE VIEW {view} AS SELECT {columns} FROM {table.sql} FINAL "  # noqa: S608
        f"COMMENT {literal(comment)}"
    )


def create_latest(target: Target, table: RowsTable, view: str, comment: str) -> str | None:
    """A view of the rows that a change table leaves; None where there is none."""
    if target.source is None or not has_latest(target):
        return None
    query = latest_query(f"{table.sql} FINAL", target.source, ClickHouseLatest())
    return f"CREATE OR REPLACE VIEW {view} AS {query} COMMENT {literal(comment)}"


def alter_in_place(
    change: TableChange, before: Target, after: Target, table: RowsTable
) -> str | None:
    """The statement that turns one layout into the other, empty where there is nothing to do; None
    where only another table can have it. May be run again.
    """
    old, new = held(before), held(after)
    steps: list[str] = []
    taken = set(before.columns)
    for was, now in _pairs(change, before, after):
        if now is None:
            steps.append(f"DROP COLUMN IF EXISTS {quoted(str(was))}")
        elif was is None:
            if now in taken:
                return None
            column = _column(change, now)
            index = new.columns.index(now)
            default = _missing(column, new.types[index])
            kind = column_type(new, index)
            steps.append(
                f"ADD COLUMN IF NOT EXISTS {quoted(now)} {kind}"
                + (f" DEFAULT {default}" if default else "")
            )
        else:
            index, place = new.columns.index(now), old.columns.index(was)
            if column_type(old, place) != column_type(new, index):
                return None
            if _is_text(old.types[place]) != _is_text(new.types[index]):
                return None
            if was != now:
                if now in taken or place in old.key:
                    return None
                steps.append(f"RENAME COLUMN IF EXISTS {quoted(was)} TO {quoted(now)}")
    return f"ALTER TABLE {table.sql} {listed(steps)}" if steps else ""


def copy_rows(
    change: TableChange, before: Target, after: Target, source: RowsTable, made: RowsTable
) -> str:
    """Carry all rows over into a table of another layout, with their versions."""
    old, new = held(before), held(after)
    values: dict[str, str] = {}
    for was, now in _pairs(change, before, after):
        if now is None:
            continue
        plain = new.types[new.columns.index(now)]
        if was is None:
            values[now] = _missing(_column(change, now), plain) or "NULL"
        else:
            kinds = old.types[old.columns.index(was)], plain
            values[now] = _converted(quoted(was), *kinds, is_history=is_change_table(after))
    ours = [VERSION, DELETED] if after.key else [quoted(ROW), VERSION, DELETED]
    names = [*map(quoted, values), *ours]
    return (
        f"INSERT INTO {made.sql} ({listed(names)}) "  # noqa: S608
        f"SELECT {listed([*values.values(), *ours])} FROM {source.sql}"
    )


def _pairs(
    change: TableChange, before: Target, after: Target
) -> Sequence[tuple[str | None, str | None]]:
    """Names of the columns that are or were delivered, before and after."""
    found = []
    for old, new in change.columns:
        was = old.name if old is not None and old.name in before.columns else None
        now = new.name if new is not None and new.name in after.columns else None
        if was is not None or now is not None:
            found.append((was, now))
    return found


def _column(change: TableChange, name: str) -> ColumnDefinition:
    return next(new for _, new in change.columns if new is not None and new.name == name)


def _missing(column: ColumnDefinition, plain: str) -> str | None:
    """What rows have in a column that is younger than they are."""
    text = first_element(column.missing)
    return None if text is None else literal_of(text, plain)


def _is_text(plain: str) -> bool:
    """Whether a column that is a String holds what Postgres wrote."""
    return plain != "bytea" and not plain.endswith("[]")


def _converted(column: str, old: str, new: str, *, is_history: bool) -> str:
    """Values of a column of one type as those of another, into which Postgres turns them without a
    rewrite. In history they stay after a rewrite, too: as they are read in the other type, null
    where they are not.
    """
    if old == new:
        return column
    if new == TEXT:
        return text_of(column, old)
    if is_history and sql_type(new) != "String":
        return f"accurateCastOrNull({text_of(column, old)}, {literal(sql_type(new))})"
    return column
