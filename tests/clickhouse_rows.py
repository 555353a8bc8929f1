"""The rows of a pipeline into ClickHouse as texts that Postgres would write, by the engine."""

# ruff: noqa: S608 - names are quoted.

from __future__ import annotations

from typing import Any

from penstock.destination.clickhouse.client import ClickHouseClient
from penstock.destination.clickhouse.destination import ClickHouseDestination
from penstock.destination.clickhouse.names import literal, quoted, view_name
from penstock.destination.clickhouse.types import held, text_of
from penstock.destination.families.target import Target


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
