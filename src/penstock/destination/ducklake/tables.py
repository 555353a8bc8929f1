"""Makes, drops and changes tables of the lake."""

# ruff: noqa: S608 (names are quoted, values are quoted literals)

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.destination.ducklake.merging import logical
from penstock.destination.ducklake.names import (
    DuckLakeLatest,
    column_names,
    column_types,
    literal,
    quoted,
    sql_type,
    table_name,
    view_name,
)
from penstock.destination.families.change_tables.latest import (
    has_latest,
    latest_query,
    latest_schema,
)
from penstock.destination.families.staged_merge.typed_columns import ColumnTyping, RowPlaces
from penstock.destination.families.target import Target
from penstock.model.array_text import first_element
from penstock.model.errors import TableRefused
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import ColumnDefinition

if TYPE_CHECKING:
    import duckdb

_SWAPPED = "penstock_swapped"


Columns = Sequence[tuple[str, str]]
"""Names and types."""


def create_table(session: duckdb.DuckDBPyConnection, target: Target, found: Columns) -> None:
    """Make a table, or take the one that was ``found`` if it has the same columns. Raises
    TableRefused where one is there that is another, or two names differ in nothing but case.
    """
    wanted = dict(zip(target.columns, column_types(target), strict=False))
    if found:
        if {name: kind for name, kind in found if name in wanted} == {
            name: _spelled(kind) for name, kind in wanted.items()
        } and (len(found) == len(wanted) or not wanted):
            return
        raise TableRefused(
            f"table {target.qualified_name} is there already, with other columns: "
            f"{', '.join(f'{name} {kind}' for name, kind in found)}",
            remedy=f"drop or rename it, then run `penstock tables retry` for "
            f"{target.qualified_name}",
            table=target.oid,
        )
    if len({name.casefold() for name in target.columns}) < len(target.columns):
        raise TableRefused(
            f"table {target.qualified_name} has columns whose names differ in nothing but case, "
            "which are the same to DuckDB",
            remedy="leave one of them out by the pipeline's filter, or rename it at the source",
            table=target.oid,
        )
    columns = [
        f"{name} {kind}"
        for name, kind in zip(column_names(target), column_types(target), strict=True)
    ]
    session.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(target.schema)}")
    session.execute(f"CREATE TABLE {table_name(target)} ({', '.join(columns)})")


def drop_table(session: duckdb.DuckDBPyConnection, target: Target) -> None:
    drop_view(session, target)
    session.execute(f"DROP TABLE IF EXISTS {table_name(target)}")


def make_view(session: duckdb.DuckDBPyConnection, target: Target) -> None:
    """Let a view show the rows that a change table leaves. Without a key there is none."""
    drop_view(session, target)
    if target.source is None or not has_latest(target):
        return
    session.execute(f"CREATE SCHEMA IF NOT EXISTS {quoted(latest_schema(target))}")
    query = latest_query(table_name(target), target.source, DuckLakeLatest())
    session.execute(f"CREATE VIEW {view_name(target)} AS {query}")


def drop_view(session: duckdb.DuckDBPyConnection, target: Target) -> None:
    found = session.execute(
        "SELECT 1 FROM duckdb_views() WHERE database_name = current_database()"
        " AND schema_name = ? AND view_name = ?",
        [latest_schema(target), target.name],
    ).fetchone()
    if found is not None:
        session.execute(f"DROP VIEW {view_name(target)}")


def lake_tables(session: duckdb.DuckDBPyConnection) -> dict[tuple[str, str], Columns]:
    """All tables that are there, by schema and name. DuckDB looks at all of them for one, too."""
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    rows = session.execute(
        "SELECT schema_name, table_name, column_name, data_type FROM duckdb_columns()"
        " WHERE database_name = current_database() ORDER BY column_index"
    ).fetchall()
    for schema, name, column, kind in rows:
        found.setdefault((schema, name), []).append((column, kind))
    return dict(found)


def _spelled(kind: str) -> str:
    """As DuckDB's catalogue shows a type."""
    return kind.replace("TIMESTAMPTZ", "TIMESTAMP WITH TIME ZONE").replace("REAL", "FLOAT")


class DuckLakeAlteration:
    """Lets a table follow a schema change, inside of a transaction.

    What DuckLake can change in place it does: names, columns that come and go, decimals that grow.
    For all else the rows go into a new table, which takes the place of the old one.
    """

    def __init__(
        self,
        session: duckdb.DuckDBPyConnection,
        change: TableChange,
        before: Target,
        after: Target,
        typing: ColumnTyping,
    ) -> None:
        self._session = session
        self._before = before
        self._after = after
        self._typing = typing
        self._kept: dict[str, str] = {}
        self._new: dict[str, ColumnDefinition] = {}
        for old, new in change.columns:
            if new is None or new.name not in after.columns:
                continue
            if old is not None and old.name in before.columns:
                self._kept[old.name] = new.name
            else:
                self._new[new.name] = new

    def run(self) -> None:
        if self._is_in_place():
            self._change()
        else:
            self._swap()

    def _is_in_place(self) -> bool:
        before, after = _types(self._before), _types(self._after)
        fits = all(
            before[old] == after[new] or _grows(before[old], after[new])
            for old, new in self._kept.items()
        )
        lists = [name for name, column in self._new.items() if column.missing is not None]
        has_defaults = all(not after[name].endswith("[]") for name in lists)
        is_same_schema = self._before.schema == self._after.schema
        return bool(fits and has_defaults and is_same_schema and self._kept)

    def _change(self) -> None:
        table = table_name(self._before)
        for name in self._before.columns:
            if name not in self._kept:
                self._alter(table, f"DROP COLUMN {quoted(name)}")
        # Names may be exchanged: all of them are left before any is taken.
        renamed = {old: new for old, new in self._kept.items() if old != new}
        for number, old in enumerate(renamed):
            self._alter(table, f"RENAME COLUMN {quoted(old)} TO penstock_{number}")
        for number, new in enumerate(renamed.values()):
            self._alter(table, f"RENAME COLUMN penstock_{number} TO {quoted(new)}")
        before, after = _types(self._before), _types(self._after)
        for old, new in self._kept.items():
            if before[old] != after[new]:
                self._alter(table, f"ALTER COLUMN {quoted(new)} TYPE {after[new]}")
        for name, column in self._new.items():
            text = self._default(column)
            default = "" if text is None else f" DEFAULT {literal(text)}"
            self._alter(table, f"ADD COLUMN {quoted(name)} {after[name]}{default}")
        if self._before.name != self._after.name:
            self._alter(table, f"RENAME TO {quoted(self._after.name)}")

    def _alter(self, table: str, what: str) -> None:
        self._session.execute(f"ALTER TABLE {table} {what}")

    def _swap(self) -> None:
        after = _types(self._after)
        kept = {new: old for old, new in self._kept.items()}
        picked = []
        for name in self._after.columns:
            if name in kept:
                value = f"TRY_CAST({quoted(kept[name])} AS {after[name]})"
            else:
                text = self._default(self._new[name])
                value = "NULL" if text is None else literal(text)
                value = f"CAST({value} AS {after[name]})"
            picked.append(f"{value} AS {quoted(name)}")
        if not picked:
            picked = [f"NULL::BOOLEAN AS {column_names(self._after)[0]}"]
        place = f"{quoted(self._after.schema)}"
        self._session.execute(f"CREATE SCHEMA IF NOT EXISTS {place}")
        self._session.execute(
            f"CREATE TABLE {place}.{_SWAPPED} AS SELECT {', '.join(picked)}"
            f" FROM {table_name(self._before)}"
        )
        self._session.execute(f"DROP TABLE {table_name(self._before)}")
        self._alter(f"{place}.{_SWAPPED}", f"RENAME TO {quoted(self._after.name)}")

    def _default(self, column: ColumnDefinition) -> str | None:
        """What rows have that are older than the column, as DuckDB writes it."""
        text = first_element(column.missing)
        if text is None:
            return None
        index = self._after.columns.index(column.name)
        texts = pa.array([text], pa.string())
        values, _ = self._typing.column(self._after, index, texts, RowPlaces())
        self._session.register(
            "penstock_default", logical(self._after, pa.table({f"c{index}": values}))
        )
        shown: str | None = self._session.execute(
            f"SELECT CAST(c{index} AS VARCHAR) FROM penstock_default"
        ).fetchall()[0][0]
        self._session.unregister("penstock_default")
        return shown


def _types(target: Target) -> dict[str, str]:
    return dict(zip(target.columns, map(sql_type, target.types), strict=True))


def _grows(before: str, after: str) -> bool:
    """Whether a decimal gets more digits, and keeps its scale."""
    if not (before.startswith("DECIMAL(") and after.startswith("DECIMAL(")):
        return False
    (p, s), (q, t) = (kind[8:-1].split(",") for kind in (before, after))
    return s == t and int(p) <= int(q)
