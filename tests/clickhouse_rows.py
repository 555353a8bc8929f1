"""The rows of a pipeline into ClickHouse as texts that Postgres would write, by the engine."""

# ruff: noqa: S608 - names are quoted.

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import psycopg

from penstock.decode.types.array_text import split_array
from penstock.destination.clickhouse.client import ClickHouseClient
from penstock.destination.clickhouse.destination import ClickHouseDestination
from penstock.destination.clickhouse.names import literal, quoted, view_name
from penstock.destination.clickhouse.types import held, text_of
from penstock.destination.families.target import Target
from tests.folded_compare import read_source

_BOUNDS = re.compile(r"\[-?\d+:")
_BOOLS = {"True": "t", "False": "f"}


def written_rows(
    destination: ClickHouseDestination, schema: str, name: str
) -> list[dict[str, str | None]]:
    """Those that are written, be they shown to readers or not."""
    target = known(destination, schema, name)
    at = destination._whereabouts(target.oid).written
    assert at is not None
    return texts(destination._client, target, f"{at.sql} FINAL")


def shown_rows(
    destination: ClickHouseDestination, schema: str, name: str
) -> list[dict[str, str | None]]:
    """Those that readers see, by the view."""
    view = view_name(destination.options, schema, name)
    relation = f"{quoted(view[0])}.{quoted(view[1])}"
    return texts(destination._client, known(destination, schema, name), relation)


def latest_rows(
    destination: ClickHouseDestination, schema: str, name: str
) -> list[dict[str, str | None]]:
    """Those that the view over a change table shows, with the columns that it has."""
    view = view_name(destination.options, f"{schema}_latest", name)
    table, there = known(destination, schema, name), column_types(destination._client, *view)
    types = {
        column: plain
        for column, plain in zip(table.columns, table.types, strict=True)
        if column in there
    }
    rows = replace(table, columns=tuple(types), types=tuple(types.values()))
    return texts(destination._client, rows, f"{quoted(view[0])}.{quoted(view[1])}")


def known(destination: ClickHouseDestination, schema: str, name: str) -> Target:
    (target,) = (
        each for each in destination._known().values() if (each.schema, each.name) == (schema, name)
    )
    return held(target)


def texts(client: ClickHouseClient, target: Target, relation: str) -> list[dict[str, Any]]:
    shown = [
        f"{text_of(quoted(name), plain)} AS t{index}"
        for index, (name, plain) in enumerate(zip(target.columns, target.types, strict=True))
    ]
    found = client.read(
        f"SELECT {', '.join([*shown, '1 AS one'])} FROM {relation}", doing="reading"
    )
    columns = [found[f"t{index}"].to_pylist() for index in range(len(target.columns))]
    rows = zip(*columns, strict=True) if columns else [()] * found.num_rows
    return [dict(zip(target.columns, row, strict=True)) for row in rows]


def column_types(client: ClickHouseClient, database: str, table: str) -> dict[str, str]:
    """Of a table or view, as the engine tells them."""
    sql = (
        f"SELECT name, type FROM system.columns WHERE database = {literal(database)} "
        f"AND table = {literal(table)}"
    )
    return {row["name"]: row["type"] for row in client.read(sql, doing="reading").to_pylist()}


def expect_same_rows(
    url: str, destination: ClickHouseDestination, tables: Sequence[str], *, unfit: bool = False
) -> int:
    """Fail unless readers see the source's rows of each table of the schema public; how many there
    are. With ``unfit`` a null stands for any value: of those that a type cannot hold.
    """
    shown = shown_rows if destination.capabilities.merges else latest_rows
    count = 0
    for table in tables:
        with psycopg.connect(url, autocommit=True) as conn:
            source = read_source(conn, table)
        target = known(destination, "public", table)
        plains = [target.types[target.columns.index(name)] for name in source.columns]
        here = Counter[tuple[Any, ...]]()
        for row, times in source.rows.items():
            here[tuple(map(_plain, row, plains))] += times
        there = Counter(
            tuple(
                _plain(row[name], plain) for name, plain in zip(source.columns, plains, strict=True)
            )
            for row in shown(destination, "public", table)
        )
        if unfit:
            _match(table, here, there)
        else:
            gone, new = list((here - there).items()), list((there - here).items())
            assert not gone + new, (table, gone[:5], new[:5])
        count += here.total()
    return count


def _match(table: str, here: Counter[tuple[Any, ...]], there: Counter[tuple[Any, ...]]) -> None:
    """Each row takes one of the source that it may stand for."""
    left = list(here.elements())
    for row in sorted(there.elements(), key=lambda row: row.count(None)):
        match = next((each for each in left if _fits(each, row)), None)
        assert match is not None, (table, row, left[:5])
        left.remove(match)
    assert not left, (table, left[:5])


def _fits(here: tuple[Any, ...], there: tuple[Any, ...]) -> bool:
    return all(b is None or a == b for a, b in zip(here, there, strict=True))


def _plain(text: str | None, plain: str) -> Any:
    """A text of either side, as what both have in common."""
    if text is None:
        return None
    if plain.endswith("[]"):
        return _elements(text, plain.removesuffix("[]"))
    if plain in ("float4", "float8"):
        return repr(float(text)) if plain == "float8" else f"{float(text):.6g}"
    return text


def _elements(text: str, plain: str) -> str:
    """The elements of an array, of Postgres's text or of JSON: lists of lists where it has more."""
    is_json = plain in ("json", "jsonb")
    if not text.startswith("{") and not _BOUNDS.match(text):
        return repr(_read(text) if is_json else _leaves(_read(text), plain))
    array = split_array(text, ",")
    rows: list[Any] = [
        each if each is None else _read(each) if is_json else _plain(each, plain)
        for each in array.elements
    ]
    for length in reversed(array.dimensions[1:]):
        rows = [rows[at : at + length] for at in range(0, len(rows), length)]
    return repr(rows)


def _leaves(found: Any, plain: str) -> Any:
    if isinstance(found, list):
        return [_leaves(each, plain) for each in found]
    return _plain(_BOOLS.get(str(found), found), plain)


def _read(text: str) -> Any:
    return json.loads(text, parse_float=str, parse_int=str)
