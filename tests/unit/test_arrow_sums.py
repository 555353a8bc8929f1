"""Sums over rows of a lake's files, as Postgres writes their values."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from hashlib import md5

import pyarrow as pa
import pytest

from penstock.destination.families.staged_merge.arrow_sums import arrow_sum
from penstock.destination.families.target import Target
from penstock.destination.protocols import TableSum

MOMENT = datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC)


@pytest.mark.parametrize(
    ("plain", "values", "texts"),
    [
        ("int8", pa.array([-1, None]), ["-1", None]),
        ("text", pa.array(["é", ""]), ["é", ""]),
        ("bool", pa.array([True, False]), ["1", "0"]),
        ("bytea", pa.array([b"\x00\xff", b""]), ["00ff", ""]),
        ("date", pa.array([date(1969, 12, 31), None]), ["-1", None]),
        ("timestamp", pa.array([MOMENT.replace(tzinfo=None)], pa.timestamp("us")), ["-1"]),
        ("timestamptz", pa.array([MOMENT], pa.timestamp("us", "UTC")), ["-1"]),
        ("time", pa.array(["24:00:00", "00:00:01.5"]), ["86400000000", "1500000"]),
        ("numeric(9,8)", pa.array([Decimal("0.00000001")]), ["0.00000001"]),
        ("float8", pa.array([0.1, None]), ["", None]),
        ("int4[]", pa.array([[1], None]), ["", None]),
    ],
)
def test_values_are_summed_as_postgres_does(
    plain: str, values: pa.Array, texts: list[str | None]
) -> None:
    target = Target(1, "public", "one", ("a",), (), (), (plain,))
    rows = pa.table([values], names=["a"])
    digests = ["-" if text is None else _md5(text) for text in texts]
    expected = sum(int(_md5(each)[:15], 16) for each in digests)
    assert arrow_sum(target, [rows]) == TableSum(len(texts), expected)
    # Neither order nor pieces matter.
    pieces = [rows.slice(place, 1) for place in reversed(range(len(rows)))]
    assert arrow_sum(target, pieces) == TableSum(len(texts), expected)


def test_rows_without_columns_are_counted() -> None:
    target = Target(1, "public", "bare", (), ())
    rows = pa.table([pa.nulls(3, pa.bool_())], names=["_row"])
    assert arrow_sum(target, [rows]) == TableSum(3, 3 * int(_md5("")[:15], 16))


def _md5(text: str) -> str:
    return md5(text.encode(), usedforsecurity=False).hexdigest()
