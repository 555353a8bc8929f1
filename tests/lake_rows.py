"""The rows of a lake as Postgres would write them, for whoever compares the two.

DuckDB reads them: those of a DuckLake, and with its own extensions those of Delta tables, which
delta-rs wrote, and those of Iceberg tables.
"""

# ruff: noqa: S608 - names are quoted.

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import psycopg
from pyiceberg.table import Table

from penstock.decode.types.array_text import split_array
from penstock.destination.ducklake.lake import Lake, extension_file
from penstock.destination.ducklake.names import literal, quoted
from penstock.destination.families.staged_merge.typed_columns import NO_COLUMNS
from penstock.destination.families.table_folders import folder_name
from penstock.destination.iceberg.catalog import TableCatalog, identifier
from penstock.destination.iceberg.options import IcebergOptions
from tests.folded_compare import read_source

Value = str | tuple[str | None, ...] | None
Rows = Counter[tuple[Value, ...]]


def expect_same_in_ducklake(url: str, lake: Lake, table: str, *, unfit: bool = False) -> int:
    """As ``expect_same``, of a table of the schema public."""
    with lake.session() as session:
        return expect_same(url, session, f"public.{quoted(table)}", table, unfit=unfit)


def expect_same_in_delta(url: str, root: Path, table: str, *, unfit: bool = False) -> int:
    """The same of a Delta table, as DuckDB's own reader of such tables sees it."""
    with duckdb.connect() as session:
        session.execute(f"LOAD {literal(extension_file('delta'))}")
        session.execute("SET TimeZone = 'UTC'")
        folder = root / "public" / folder_name(table)
        relation = f"delta_scan({literal(str(folder))})"
        return expect_same(url, session, relation, table, unfit=unfit)


class IcebergReader:
    """DuckDB's own reader of Iceberg tables, of those that a catalogue names."""

    def __init__(self, options: IcebergOptions) -> None:
        self._options = options
        self._session = duckdb.connect()
        for name in ("avro", "iceberg"):
            self._session.execute(f"LOAD {literal(extension_file(name))}")
        self._session.execute("SET TimeZone = 'UTC'")

    @contextmanager
    def table(self, schema: str, name: str) -> Iterator[Table]:
        """As the catalogue has it now."""
        tables = TableCatalog(self._options)
        try:
            table = tables.find(identifier(schema, name))
            assert table is not None
            yield table
        finally:
            tables.close()

    def relation(self, schema: str, name: str) -> str:
        with self.table(schema, name) as table:
            place = table.metadata_location.removeprefix("file://")
        return f"iceberg_scan({literal(place)})"

    def texts(self, name: tuple[str, str]) -> list[dict[str, Any]]:
        """The rows of a table as texts."""
        found = self._session.execute(
            f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM {self.relation(*name)}"
        )
        names = [column[0] for column in found.description or []]
        rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
        return [{column: row[column] for column in row if column != NO_COLUMNS} for row in rows]

    def expect_same(self, url: str, table: str, *, unfit: bool = False) -> int:
        """As ``expect_same``, of a table of the schema public."""
        return expect_same(url, self._session, self.relation("public", table), table, unfit=unfit)

    def close(self) -> None:
        self._session.close()


def expect_same(
    url: str,
    session: duckdb.DuckDBPyConnection,
    relation: str,
    table: str,
    *,
    unfit: bool = False,
) -> int:
    """Fail unless a table of the source's schema public holds the same rows; how many these are.

    With ``unfit`` a null stands for any value: of those that the lake cannot hold.
    """
    with psycopg.connect(url, autocommit=True) as conn:
        source = read_source(conn, table)
    described = session.execute(f"DESCRIBE SELECT * FROM {relation}").fetchall()
    kinds = {row[0]: row[1] for row in described if row[0] != NO_COLUMNS}
    assert sorted(kinds) == sorted(source.columns)
    shown = [_shown(quoted(name), kinds[name]) for name in source.columns] or ["1"]
    found = session.execute(f"SELECT {', '.join(shown)} FROM {relation}").fetchall()
    types = [kinds[name] for name in source.columns]
    there: Rows = Counter(tuple(map(_plain, row, types)) for row in found)
    here: Rows = Counter()
    for row, count in source.rows.items():
        here[tuple(map(_expected, row, types))] += count
    if unfit:
        # Each row of the lake takes one of the source that it may stand for.
        left = list(here.elements())
        for row in sorted(there.elements(), key=lambda row: row.count(None)):
            match = next((each for each in left if _fits(each, row)), None)
            assert match is not None, (table, row, left[:5])
            left.remove(match)
        assert not left, (table, left[:5])
    else:
        gone, new = list((here - there).items()), list((there - here).items())
        assert not gone + new, (table, gone[:5], new[:5])
    return here.total()


def _fits(here: tuple[Value, ...], there: tuple[Value, ...]) -> bool:
    return all(b is None or a == b for a, b in zip(here, there, strict=True))


def _shown(name: str, kind: str) -> str:
    if kind.endswith("[]"):
        return f"list_transform({name}, lambda x: {_shown('x', kind.removesuffix('[]'))})"
    if kind == "BLOB":
        return f"'\\x' || lower(hex({name}))"
    return f"CAST({name} AS VARCHAR)"


def _plain(value: Any, kind: str) -> Value:
    """What DuckDB showed, as Postgres writes it."""
    if value is None:
        return None
    if isinstance(value, list):
        return tuple(_scalar(each, kind.removesuffix("[]")) for each in value)
    return _scalar(value, kind)


def _scalar(text: str | None, kind: str) -> str | None:
    if text is None:
        return None
    if kind == "BOOLEAN":
        return text[0]
    if kind in ("DOUBLE", "FLOAT"):
        return repr(float(text)) if kind == "DOUBLE" else f"{float(text):.6g}"
    if " (BC)" in text and kind.startswith(("DATE", "TIMESTAMP")):
        return f"{text.replace(' (BC)', '')} BC"
    return text


def _expected(text: str | None, kind: str) -> Value:
    if text is None or not kind.endswith("[]"):
        return None if text is None else _number(text, kind)
    array = split_array(text, ",")
    scalar = kind.removesuffix("[]")
    return tuple(None if each is None else _number(each, scalar) for each in array.elements)


def _number(text: str, kind: str) -> str:
    if kind == "DOUBLE":
        return repr(float(text))
    return f"{float(text):.6g}" if kind == "FLOAT" else text
