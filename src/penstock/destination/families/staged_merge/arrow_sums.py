"""What rows of a lake's files add up to, as `penstock verify` compares it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import md5

import pyarrow as pa

from penstock.destination.families.target import Target
from penstock.destination.protocols import SummedAs, TableSum, summed_as

_DIGITS = 15
"""Hexadecimal digits of a row's md5 that count."""


def arrow_sum(target: Target, rows: Iterable[pa.Table | pa.RecordBatch]) -> TableSum:
    """Of rows that have the target's columns by their names, some at a time."""
    count = checksum = 0
    for some in rows:
        count += some.num_rows
        columns = [
            [_digest(text) for text in _texts(some.column(name), summed_as(plain))]
            for name, plain in zip(target.columns, target.types, strict=True)
        ]
        digests = map("".join, zip(*columns, strict=True)) if columns else [""] * some.num_rows
        checksum += sum(int(_digest(row)[:_DIGITS], 16) for row in digests)
    return TableSum(count, checksum)


def _digest(text: str | None) -> str:
    return "-" if text is None else md5(text.encode(), usedforsecurity=False).hexdigest()


def _texts(column: pa.Array | pa.ChunkedArray, kind: SummedAs) -> Sequence[str | None]:
    """Its values as ``SummedAs`` says."""
    if kind == "presence":
        return ["" if there else None for there in column.is_valid().to_pylist()]
    if kind == "days":
        return _plain(column.cast(pa.int32()))
    if kind == "instant":
        return _plain(column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()))
    values = column.to_pylist()
    if kind == "flag":
        return [None if value is None else str(int(value)) for value in values]
    if kind == "bytes":
        return [None if value is None else value.hex() for value in values]
    if kind == "clock":
        return [None if value is None else str(_micros(value)) for value in values]
    if pa.types.is_decimal(column.type):
        return [None if value is None else format(value, "f") for value in values]
    return _plain(column)


def _plain(column: pa.Array | pa.ChunkedArray) -> list[str | None]:
    return [None if value is None else str(value) for value in column.to_pylist()]


def _micros(time: str) -> int:
    """Of a time of day as Postgres writes it."""
    clock, _, part = time.partition(".")
    hours, minutes, seconds = map(int, clock.split(":"))
    return (hours * 3600 + minutes * 60 + seconds) * 1_000_000 + int(f"{part:0<6}")
