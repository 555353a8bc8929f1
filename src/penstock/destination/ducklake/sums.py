"""What a table of the lake holds, as `penstock verify` compares it."""

# ruff: noqa: S608 (names are quoted)

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from penstock.destination.ducklake.names import quoted, table_name
from penstock.destination.families.target import Target
from penstock.destination.protocols import SummedAs, TableSum, summed_as

if TYPE_CHECKING:
    import duckdb

_TEXTS: Mapping[SummedAs, str] = {
    "text": "CAST({0} AS VARCHAR)",
    "flag": "CAST(CAST({0} AS INTEGER) AS VARCHAR)",
    "bytes": "lower(hex({0}))",
    "days": "CASE WHEN isfinite({0}) THEN CAST(date_diff('day', DATE '1970-01-01', {0}) AS VARCHAR)"
    " ELSE CAST({0} AS VARCHAR) END",
    "instant": "CASE WHEN isfinite({0}) THEN CAST(epoch_us({0}) AS VARCHAR)"
    " ELSE CAST({0} AS VARCHAR) END",
    "clock": "CAST(epoch_us({0}) AS VARCHAR)",
    "presence": "CASE WHEN {0} IS NOT NULL THEN '' END",
}


def lake_sum(session: duckdb.DuckDBPyConnection, target: Target) -> TableSum:
    digests = [
        f"coalesce(md5({_TEXTS[summed_as(plain)].format(quoted(name))}), '-')"
        for name, plain in zip(target.columns, target.types, strict=True)
    ]
    row = " || ".join(digests) or "''"
    ((rows, checksum),) = session.execute(
        f"SELECT count(*), coalesce(sum(CAST('0x' || left(md5({row}), 15) AS BIGINT)), 0)"
        f" FROM {table_name(target)}"
    ).fetchall()
    return TableSum(int(rows), int(checksum))
