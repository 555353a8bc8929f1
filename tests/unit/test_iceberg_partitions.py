"""Which rows are in which partition of an Iceberg table, and what the pipeline file may say."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    DecimalType,
    LongType,
    NestedField,
    StringType,
    TimestamptzType,
)

from penstock.destination.families.target import Target
from penstock.destination.iceberg.options import IcebergOptions
from penstock.destination.iceberg.partitions import WHOLE, partition_spec, split_rows
from penstock.model.errors import TableRefused

SCHEMA = Schema(
    NestedField(1, "id", LongType()),
    NestedField(2, "at", TimestamptzType()),
    NestedField(3, "day", DateType()),
    NestedField(4, "name", StringType()),
    NestedField(5, "price", DecimalType(10, 2)),
)
TARGET = Target(7, "public", "items", ("id", "at", "day", "name", "price"), (0,))
ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3, 4], pa.int64()),
        "at": pa.array(
            [
                datetime(1969, 12, 31, 23, 59, 59, 999999, UTC),
                datetime(1970, 1, 1, tzinfo=UTC),
                datetime(2024, 2, 29, 23, 30, tzinfo=UTC),
                None,
            ],
            pa.timestamp("us", "UTC"),
        ),
        "day": pa.array([date(1969, 12, 31), date(2024, 2, 29), None, date(2024, 2, 1)]),
        "name": ["abc", "abd", None, ""],
        "price": pa.array([Decimal("1.50"), None, Decimal("-0.01"), Decimal("1.50")]),
    }
).cast(
    pa.schema(
        [
            ("id", pa.int64()),
            ("at", pa.timestamp("us", "UTC")),
            ("day", pa.date32()),
            ("name", pa.string()),
            ("price", pa.decimal128(10, 2)),
        ]
    )
)


def _ids(*by: str) -> dict[tuple[Any, ...], list[int]]:
    spec = partition_spec(TARGET, SCHEMA, by)
    parts = list(split_rows(ROWS, SCHEMA, spec))
    assert {part.spec_id for part, _ in parts} == {spec.spec_id}
    return {part.values: rows["id"].to_pylist() for part, rows in parts}


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("day(at)", {(-1,): [1], (0,): [2], (19782,): [3], (None,): [4]}),
        ("hour(at)", {(-1,): [1], (0,): [2], (474791,): [3], (None,): [4]}),
        ("month(at)", {(-1,): [1], (0,): [2], (649,): [3], (None,): [4]}),
        ("year(day)", {(-1,): [1], (54,): [2, 4], (None,): [3]}),
        ("day(day)", {(-1,): [1], (19782,): [2], (None,): [3], (19754,): [4]}),
        ("truncate(2, name)", {("ab",): [1, 2], (None,): [3], ("",): [4]}),
        ("truncate(2, id)", {(0,): [1], (2,): [2, 3], (4,): [4]}),
        ("price", {(Decimal("1.50"),): [1, 4], (None,): [2], (Decimal("-0.01"),): [3]}),
    ],
)
def test_rows_by_partition(by: str, expected: dict[tuple[Any, ...], list[int]]) -> None:
    assert _ids(by) == expected


def test_buckets_and_several_columns() -> None:
    found = _ids("bucket(2, id)", "day")
    assert sorted(each for ids in found.values() for each in ids) == [1, 2, 3, 4]
    assert {bucket for bucket, _ in found} <= {0, 1}
    # As the specification hashes 34: 2017239379.
    spec = partition_spec(TARGET, SCHEMA, ["bucket(1000, id)"])
    row = ROWS.slice(0, 1).set_column(0, "id", pa.array([34], pa.int64()))
    ((part, _),) = split_rows(row, SCHEMA, spec)
    assert part.values == (2017239379 % 1000,)


def test_without_partitions_all_rows_are_together() -> None:
    from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

    ((part, rows),) = split_rows(ROWS, SCHEMA, UNPARTITIONED_PARTITION_SPEC)
    assert part == WHOLE
    assert rows is ROWS


@pytest.mark.parametrize("by", ["day(gone)", "day(name)", "gone"])
def test_a_table_that_cannot_be_partitioned_so_is_refused(by: str) -> None:
    with pytest.raises(TableRefused, match=r"public\.items cannot be partitioned by"):
        partition_spec(TARGET, SCHEMA, [by])


@pytest.mark.parametrize(
    ("by", "is_right"),
    [
        *((text, True) for text in ("day(at)", "bucket(16, id)", "truncate(4,name)", "a b", "day")),
        *((text, False) for text in ("bucket(id)", "day(3, at)", "bucket(0, id)", "week(at)", "")),
    ],
)
def test_what_the_pipeline_file_may_say(by: str, is_right: bool) -> None:
    options = {"catalog_file": "c", "warehouse": "w", "partition": {"public.items": [by]}}
    if is_right:
        assert IcebergOptions.model_validate(options).partition == {"public.items": [by]}
    else:
        with pytest.raises(ValidationError, match="Input should be year"):
            IcebergOptions.model_validate(options)
