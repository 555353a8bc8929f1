"""The rows of stand-ins for warehouses beside those of the source."""

# ruff: noqa: S608 - names are quoted.

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import psycopg

from penstock.decode.types.array_text import split_array
from penstock.destination.families.staged_merge.typed_columns import NO_COLUMNS
from tests.bigquery_stand_in import BigQueryStandIn
from tests.folded_compare import read_source
from tests.snowflake_stand_in import SnowflakeStandIn

Value = str | tuple[Any, ...] | None


Columns = dict[str, str]
"""Names, as at the source but in small letters, and types: document, binary, boolean, float, or
another whose text is Postgres's.
"""


def expect_same_in_stand_in(
    url: str, database: str, table: str, *, unfit: bool = False, schema: str = "public"
) -> int:
    """As ``expect_same_rows``, of a table or view of a schema in the database of a stand-in for
    Redshift.
    """
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("SET timezone TO 'UTC'")
        kinds: Columns = dict(
            conn.execute(
                "SELECT column_name, data_type FROM stand_in.columns"
                " WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
                [schema, table.lower()],
            ).fetchall()
        )
        shown = ", ".join(f'"{name}"::text' for name in kinds)
        relation = f'{schema}."{table.lower()}"'
        found = conn.execute(f"SELECT {shown} FROM {relation}".encode()).fetchall()
    spelled = {"super": "document", "binary varying": "binary"}
    columns = {name: spelled.get(kind, kind) for name, kind in kinds.items()}
    return expect_same_rows(url, table, columns, found, unfit=unfit)


def expect_same_in_snowflake(
    url: str, stand_in: SnowflakeStandIn, table: str, *, unfit: bool = False, schema: str = "public"
) -> int:
    """The same of a stand-in for Snowflake."""
    name = f'"{schema.upper()}"."{table.upper()}"'
    return _expect_same_in_duckdb(url, stand_in, table, name, unfit=unfit)


def expect_same_in_bigquery(
    url: str, stand_in: BigQueryStandIn, table: str, *, unfit: bool = False, schema: str = "public"
) -> int:
    """The same of a stand-in for BigQuery."""
    return _expect_same_in_duckdb(url, stand_in, table, f'"{schema}"."{table}"', unfit=unfit)


def _expect_same_in_duckdb(
    url: str, stand_in: SnowflakeStandIn | BigQueryStandIn, table: str, name: str, *, unfit: bool
) -> int:
    _, described = stand_in.read(f"DESCRIBE {name}")
    spelled = {"JSON": "document", "BLOB": "binary", "BOOLEAN": "boolean", "DOUBLE": "float"}
    columns = {row[0].lower(): spelled.get(row[1], row[1]) for row in described}
    shown = ", ".join(
        f'lower(hex("{row[0]}"))' if row[1] == "BLOB" else f'"{row[0]}"::VARCHAR'
        for row in described
    )
    _, found = stand_in.read(f"SELECT {shown} FROM {name}")
    return expect_same_rows(url, table, columns, found, unfit=unfit)


def expect_same_rows(
    url: str, table: str, columns: Columns, rows: list[tuple[Any, ...]], *, unfit: bool
) -> int:
    """Fail unless a table of the source's schema public holds these rows, which are texts in the
    order of the columns; how many these are. With ``unfit`` a null stands for any value.
    """
    with psycopg.connect(url, autocommit=True) as conn:
        source = read_source(conn, table)
        arrays = {
            name.lower()
            for (name,) in conn.execute(
                "SELECT attname FROM pg_attribute JOIN pg_type t ON t.oid = atttypid"
                " WHERE attrelid = %s::regclass AND attnum > 0 AND typcategory = 'A'",
                [f'public."{table}"'],
            )
        }
    names = [name.lower() for name in source.columns]
    places = {name: index for index, name in enumerate(columns) if name != NO_COLUMNS}
    assert sorted(places) == sorted(names)
    types = [
        "array" if columns[name] == "document" and name in arrays else columns[name]
        for name in names
    ]
    there = Counter(
        tuple(_there(row[places[name]], kind) for name, kind in zip(names, types, strict=True))
        for row in rows
    )
    left = Counter[tuple[Value, ...]]()
    for row, count in source.rows.items():
        left[tuple(map(_here, row, types))] += count
    if not unfit:
        gone, new = list((left - there).items()), list((there - left).items())
        assert not gone + new, (table, gone[:3], new[:3])
        return there.total()
    rest = list(left.elements())
    for found in sorted(there.elements(), key=lambda row: row.count(None)):
        fits = [
            each
            for each in rest
            if all(b is None or a == b for a, b in zip(each, found, strict=True))
        ]
        assert fits, (table, found, rest[:3])
        rest.remove(fits[0])
    assert not rest, (table, rest[:3])
    return there.total()


def _there(text: str | None, kind: str) -> Value:
    if text is None or kind not in ("document", "array", "float"):
        return text
    if kind == "float":
        return repr(float(text))
    found = _loaded(text)
    return tuple(_elements(found)) if kind == "array" else json.dumps(found, sort_keys=True)


def _here(text: str | None, kind: str) -> Value:
    if text is None:
        return None
    if kind == "binary":
        return text.removeprefix("\\x")
    if kind == "boolean":
        return {"t": "true", "f": "false"}[text]
    if kind == "float":
        return repr(float(text))
    if kind == "array":
        return tuple(map(_element, split_array(text, ",").elements))
    return json.dumps(_loaded(text), sort_keys=True) if kind == "document" else text


def _loaded(text: str) -> Any:
    """A document whose numbers are texts, each in the one way that its value is written."""
    return json.loads(text, parse_float=_number, parse_int=_number)


def _number(text: str) -> str:
    return str(Decimal(text).normalize() + 0)  # documents know no -0


def _elements(value: Any) -> Iterator[str | None]:
    """Of all levels."""
    for each in value:
        if isinstance(each, list):
            yield from _elements(each)
        else:
            yield _element(each)


def _element(value: Any) -> str | None:
    """As text, however it was written."""
    found = value
    if isinstance(value, str):
        try:
            found = _loaded(value)
        except json.JSONDecodeError:
            return {"t": "true", "f": "false"}.get(value, value)
    if found is None:
        return None
    return str(found) if isinstance(found, str) else json.dumps(found, sort_keys=True)
