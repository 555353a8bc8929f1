"""The verdict: are the delivered rows those of the source, value by value, as exact text?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql

from penstock.destination.files.folding import FoldedTable
from penstock.model.value_settings import VALUE_SETTINGS

_SHOWN = 5
_LONGEST_VALUE = 60

Row = tuple[Any, ...]


@dataclass(frozen=True)
class TableVerdict:
    """One table's result. ``differences`` are sentences that name the keys; empty means equal."""

    table: str
    rows: int
    differences: tuple[str, ...]

    @property
    def equal(self) -> bool:
        return not self.differences


def read_source(conn: psycopg.Connection[Any], table: str) -> FoldedTable:
    """Every row of a table of the source, values as Postgres prints them to replication."""
    with conn.transaction():
        for setting in VALUE_SETTINGS:
            conn.execute(setting)
        found = conn.execute(
            sql.SQL("SELECT * FROM {}").format(sql.Identifier("public", table)), binary=False
        )
        # The result itself instead of psycopg's values: those are Python's, not Postgres's.
        result = found.pgresult
        assert result is not None
        names = tuple((result.fname(column) or b"").decode() for column in range(result.nfields))
        rows = Counter(
            tuple(_text(result.get_value(row, column)) for column in range(result.nfields))
            for row in range(result.ntuples)
        )
    return FoldedTable(names, rows)


def read_key(conn: psycopg.Connection[Any], table: str) -> tuple[str, ...]:
    """The columns of a table's primary key; none where it has none."""
    found = conn.execute(
        "SELECT a.attname::text FROM pg_index i"
        " JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)"
        " WHERE i.indisprimary AND i.indrelid = %s::regclass ORDER BY a.attnum",
        [sql.Identifier("public", table).as_string(conn)],
    ).fetchall()
    return tuple(name for (name,) in found)


def compare(
    table: str, key: Sequence[str], source: FoldedTable, delivered: FoldedTable
) -> TableVerdict:
    """Compare two multisets of rows; ``key`` names the columns by which a person finds a row."""
    if delivered.rows and delivered.columns != source.columns:
        difference = (
            f"{table}: the source has the columns {', '.join(source.columns)}, the files have "
            f"{', '.join(delivered.columns)}"
        )
        return TableVerdict(table, len(source), (difference,))
    missing = source.rows - delivered.rows
    extra = delivered.rows - source.rows
    return TableVerdict(table, len(source), tuple(_differences(table, key, source, missing, extra)))


def _differences(
    table: str,
    key: Sequence[str],
    source: FoldedTable,
    missing: Counter[Row],
    extra: Counter[Row],
) -> list[str]:
    columns = source.columns
    by = [columns.index(name) for name in key or columns]

    def named(row: Row) -> str:
        pairs = ", ".join(f"{columns[at]}={_shown(row[at])}" for at in by)
        return f"{table} ({pairs})"

    # Without a key, the whole row stands for it, and no two rows that differ belong together.
    others = {tuple(row[at] for at in by): row for row in extra} if key else {}
    sentences = []
    for row, count in missing.items():
        other = others.pop(tuple(row[at] for at in by), None)
        if other is None:
            sentences.append(f"{named(row)}: missing in the files{_times(count)}")
            continue
        extra = extra - Counter([other])
        values = "; ".join(
            f"{name} is {_shown(ours)} in the source, {_shown(theirs)} in the files"
            for name, ours, theirs in zip(columns, row, other, strict=True)
            if ours != theirs
        )
        sentences.append(f"{named(row)}: {values}")
    sentences += [
        f"{named(row)}: in the files, but not in the source{_times(count)}"
        for row, count in extra.items()
    ]
    if len(sentences) > _SHOWN:
        left = len(sentences) - _SHOWN
        sentences = [*sentences[:_SHOWN], f"{table}: and {left} more rows that differ"]
    return sentences


def _times(count: int) -> str:
    return f" ({count} times)" if count > 1 else ""


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}… ({len(value)} long)"
