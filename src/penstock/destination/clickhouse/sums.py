"""What a table in ClickHouse holds, as `penstock verify` compares it. Pure."""

# ruff: noqa: S608 (names are quoted)

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from penstock.destination.clickhouse.names import RowsTable, quoted
from penstock.destination.clickhouse.types import TYPES
from penstock.destination.families.target import Target
from penstock.destination.protocols import SummedAs, summed_as

_SECONDS = (
    "toInt64(substring({0}, 1, 2)) * 3600 + toInt64(substring({0}, 4, 2)) * 60"
    " + toInt64(substring({0}, 7, 2))"
)
# Times of day are texts there.
_TEXTS: Mapping[SummedAs, str] = {
    "text": "toString({0})",
    "flag": "toString(toUInt8({0}))",
    "bytes": "lower(hex({0}))",
    "days": "toString(toInt32({0}))",
    "instant": "toString(toUnixTimestamp64Micro({0}))",
    "clock": f"toString(({_SECONDS}) * 1000000"
    " + toInt64OrZero(rightPad(substring({0}, 10), 6, '0')))",
    "presence": "if(isNull({0}), NULL, '')",
}


def sum_query(target: Target, table: RowsTable) -> str:
    """The query that has the number of rows and their sum, as a text."""
    digests = [
        f"ifNull({_digest(_text(plain).format(quoted(name)))}, '-')"
        for name, plain in zip(target.columns, target.types, strict=True)
    ]
    row = f"concat({', '.join(digests)}, '')" if digests else "''"
    # Read as a number, the first byte is the last one.
    number = f"reinterpretAsUInt64(reverse(unhex(concat('0', left({_digest(row)}, 15)))))"
    return (
        f"SELECT count() AS rows, toString(sum(toUInt128({number}))) AS checksum"
        f" FROM {table.sql} FINAL"
    )


def _text(plain: str) -> str:
    decimal = TYPES.arrow(plain)
    if pa.types.is_decimal(decimal):
        return f"toDecimalString({{0}}, {decimal.scale})"  # toString leaves zeros out
    return _TEXTS[summed_as(plain)]


def _digest(text: str) -> str:
    return f"lower(hex(MD5({text})))"
