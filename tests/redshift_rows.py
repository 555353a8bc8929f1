"""The rows of a stand-in for Redshift beside those of the source."""

# ruff: noqa: S608 - names are quoted.

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import psycopg

from penstock.decode.types.array_text import split_array
from penstock.destination.families.staged_merge.typed_columns import NO_COLUMNS
from tests.folded_compare import read_source

Value = str | tuple[Any, ...] | None


def expect_same_in_stand_in(url: str, database: str, table: str, *, unfit: bool = False) -> int:
    """Fail unless a table of the source's schema public holds the same rows in the database of a
    stand-in; how many these are. With ``unfit`` a null there stands for any value.
    """
    with psycopg.connect(url, autocommit=True) as conn:
        source = read_source(conn, table)
    with psycopg.connect(database, autocommit=True) as conn:
        conn.execute("SET timezone TO 'UTC'")
        kinds: dict[str, str] = dict(
            conn.execute(
                "SELECT column_name, data_type FROM stand_in.columns"
                " WHERE table_schema = 'public' AND table_name = %s",
                [table.lower()],
            ).fetchall()
        )
        kinds.pop(NO_COLUMNS, None)
        assert sorted(kinds) == sorted(name.lower() for name in source.columns)
        names = [name.lower() for name in source.columns]
        shown = ", ".join(f'"{name}"::text' for name in names) or "1"
        found = conn.execute(f'SELECT {shown} FROM public."{table.lower()}"'.encode()).fetchall()
    types = [kinds[name] for name in names]
    there = Counter(tuple(map(_there, row, types)) for row in found)
    left = Counter[tuple[Value, ...]]()
    for row, count in source.rows.items():
        left[tuple(map(_here, row, types))] += count
    if not unfit:
        gone, new = list((left - there).items()), list((there - left).items())
        assert not gone + new, (table, gone[:3], new[:3])
        return there.total()
    rest = list(left.elements())
    for row in sorted(there.elements(), key=lambda row: row.count(None)):
        fits = [
            each
            for each in rest
            if all(b is None or a == b for a, b in zip(each, row, strict=True))
        ]
        assert fits, (table, row, rest[:3])
        rest.remove(fits[0])
    assert not rest, (table, rest[:3])
    return there.total()


def _there(text: str | None, kind: str) -> Value:
    if text is None or kind != "super":
        return text
    return _plain(json.loads(text))


def _here(text: str | None, kind: str) -> Value:
    if text is None:
        return None
    if kind == "binary varying":
        return text.removeprefix("\\x")
    if kind == "boolean":
        return {"t": "true", "f": "false"}[text]
    if kind != "super":
        return text
    try:
        return _plain(json.loads(text))
    except json.JSONDecodeError:
        return tuple(map(_element, split_array(text, ",").elements))


def _plain(value: Any) -> str | tuple[Any, ...]:
    """A document; an array of one level or more as its elements."""
    if isinstance(value, list):
        return tuple(
            element
            for each in value
            for element in (_plain(each) if isinstance(each, list) else [_element(each)])
        )
    return json.dumps(value, sort_keys=True)


def _element(value: Any) -> str | None:
    """As text, however it was written."""
    if value is None:
        return None
    if not isinstance(value, str):
        return str(value)
    try:
        return _element(json.loads(value))
    except json.JSONDecodeError:
        return {"t": "True", "f": "False"}.get(value, value)
