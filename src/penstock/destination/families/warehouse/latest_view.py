"""The views that show the rows which change tables leave (`mode: append`)."""

from __future__ import annotations

import json
from collections.abc import Sequence

from penstock.destination.families.change_tables.latest import (
    WindowedLatest,
    has_latest,
    latest_query,
    latest_schema,
)
from penstock.destination.families.target import Target
from penstock.destination.families.warehouse.dialect import Dialect


class WarehouseLatest(WindowedLatest):
    """In the words of a warehouse."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self.wide = dialect.sql_type("numeric(38,0)")
        self.names_recursion = dialect.names_recursion

    def quoted(self, name: str) -> str:
        return self._dialect.quoted(name)

    def old_value(self, column: str, plain: str) -> str:
        """``_old`` holds numbers and truth values as JSON does, all else as texts of Postgres."""
        text, held = self._dialect.member("_old", column), self._dialect.types.held_as(plain)
        if held == "bool":
            return f"({text} = 'true')"
        if held == "bytea":
            text = f"SUBSTR({text}, 3)"
        return self._dialect.parsed(held, text)

    def is_unset(self, column: str) -> str:
        """Inside of a string of JSON no quote stands behind a comma or a bracket: it is escaped."""
        text, name = self._dialect.document_text("_unset"), json.dumps(column, ensure_ascii=False)
        first, other = (
            self._dialect.holds(text, self._dialect.literal(f"{before}{name}"))
            for before in ("[", ",")
        )
        return f"({first} OR {other})"

    def identity(self, value: str, plain: str) -> Sequence[str]:
        return self._dialect.identity(self._dialect.types.held_as(plain), value)


def view_of(dialect: Dialect, target: Target) -> str | None:
    """The name of the view over a change table; None where there is none."""
    source = target.source
    if source is None or not has_latest(target):
        return None
    if any(dialect.types.held_as(source.types[index]) == "json" for index in source.key):
        return None
    return view_name(dialect, target)


def view_name(dialect: Dialect, target: Target) -> str:
    return f"{dialect.quoted(latest_schema(target))}.{dialect.quoted(target.name)}"


def make_view(dialect: Dialect, target: Target) -> Sequence[str]:
    """Statements that put the view over a change table in place."""
    view = view_of(dialect, target)
    if view is None or target.source is None:
        return ()
    query = latest_query(dialect.table(target), target.source, WarehouseLatest(dialect))
    made = f"CREATE OR REPLACE VIEW {view} AS {query}"
    return dialect.create_schema(latest_schema(target)), made


def drop_view(dialect: Dialect, target: Target) -> Sequence[str]:
    """Statements that remove it, if it is there."""
    return (f"DROP VIEW IF EXISTS {view_name(dialect, target)}",)
