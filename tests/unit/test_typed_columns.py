"""Postgres's texts as typed columns of a lake: what fits, and what becomes of what does not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from penstock.destination.families.staged_merge.task_writer import row_texts
from penstock.destination.families.staged_merge.typed_columns import (
    ColumnTyping,
    EngineTypes,
    RowPlaces,
)
from penstock.destination.families.target import Target
from penstock.model.errors import TableRefused
from penstock.model.plain_type import plain_type
from penstock.model.table_definition import ColumnDefinition, TypeDefinition, TypeName

ENDLESS = EngineTypes(has_time=True, has_uuid=True, has_unsigned=True, is_endless=True)
NARROW = EngineTypes(has_time=False, has_uuid=False, has_unsigned=False, is_endless=False)
DAYS = Target(7, "public", "days", ("id", "day"), (0,), (), ("int8", "date"))


def _numbers(values: pa.Array) -> list[int | None]:
    found: list[int | None] = values.view(pa.int32()).to_pylist()
    return found


def _fit(engine: EngineTypes, plain: str, *texts: str | None) -> tuple[pa.Array, list[bool]]:
    values, unfit = engine.fit(pa.array(texts, pa.string()), plain, nearest=False)
    return values, [False] * len(texts) if unfit is None else unfit.tolist()


def test_infinity_is_a_date_where_the_engine_has_it() -> None:
    texts = ("infinity", "-infinity", "4713-01-01 BC", None)
    values, unfit = _fit(ENDLESS, "date", *texts)
    assert _numbers(values) == [2**31 - 1, 1 - 2**31, -2440550, None]
    assert unfit == [False] * 4
    values, unfit = _fit(NARROW, "date", *texts, "9999-12-31", "10000-01-01")
    assert unfit == [True, True, True, False, False, True]
    assert values.null_count == 5


def test_the_nearest_date() -> None:
    texts = pa.array(["infinity", "-infinity", "4713-01-01 BC", "12345-01-01", "2000-01-01"])
    values, _ = NARROW.fit(texts, "date", nearest=True)
    assert [str(value) for value in values] == [
        "9999-12-31",
        "0001-01-01",
        "0001-01-01",
        "9999-12-31",
        "2000-01-01",
    ]


def test_a_timestamp_beyond_all_types() -> None:
    values, unfit = _fit(ENDLESS, "timestamp", "294276-12-31 23:59:59", "infinity")
    assert unfit == [True, False]
    assert values.view(pa.int64()).to_pylist() == [None, 2**63 - 1]


@pytest.mark.parametrize(
    ("engine", "plain", "arrow"),
    [
        (ENDLESS, "time", pa.time64("us")),
        (NARROW, "time", pa.string()),
        (ENDLESS, "uuid", pa.binary(16)),
        (ENDLESS, "uuid[]", pa.list_(pa.string())),
        (NARROW, "uuid", pa.string()),
        (ENDLESS, "xid8", pa.uint64()),
        (NARROW, "xid8", pa.decimal128(20, 0)),
        (NARROW, "oid[]", pa.list_(pa.int64())),
        (NARROW, "int2", pa.int16()),
        (replace(NARROW, has_small=False), "int2", pa.int32()),
        (replace(NARROW, has_small=False), "int2[]", pa.list_(pa.int32())),
        (ENDLESS, "numeric(38,2)", pa.decimal128(38, 2)),
        (ENDLESS, "numeric(39,2)", pa.string()),
        (ENDLESS, "jsonb", pa.string()),
    ],
)
def test_types(engine: EngineTypes, plain: str, arrow: pa.DataType) -> None:
    assert engine.arrow(plain) == arrow
    values, _ = _fit(engine, plain, None)
    assert values.type == arrow


def test_24_o_clock_and_lists_of_odd_shapes() -> None:
    values, unfit = _fit(ENDLESS, "time", "24:00:00", "00:00:00")
    assert values.view(pa.int64()).to_pylist() == [86_400_000_000, 0]
    assert unfit == [False, False]
    assert _fit(ENDLESS, "int4[]", "{1,NULL}", "{{1},{2}}", None)[1] == [False, True, False]
    assert _fit(NARROW, "date[]", "{2000-01-01}", "{12345-01-01}", "{}")[1] == [False, True, False]


def test_lists_that_are_unfit_for_two_reasons() -> None:
    """What lies below a null is not counted among the elements."""
    values, unfit = _fit(
        NARROW, "date[]", "{2000-01-01,infinity}", "{{2000-01-01},{2000-01-02}}", "{12345-01-01}"
    )
    assert unfit == [True, True, True]
    assert values.to_pylist() == [None, None, None]


def _column(policy: str, places: RowPlaces, *texts: str | None) -> tuple[pa.Array, int]:
    typing = ColumnTyping(NARROW, policy)  # type: ignore[arg-type]
    return typing.column(DAYS, 1, pa.array(texts, pa.string()), places)


def test_what_is_unfit_is_refused_with_key_position_and_cause() -> None:
    places = RowPlaces([pa.array(["1", "2"])], np.array([0x10, 0x20]), np.array([0, 3]))
    with pytest.raises(TableRefused, match=r"public\.days: 'infinity' in column day") as error:
        _column("refuse", places, "2000-01-01", "infinity")
    assert "the row with id = 2, changed at 0/20+3" in error.value.message
    assert error.value.table == DAYS.oid


def test_what_is_unfit_is_counted() -> None:
    places = RowPlaces([pa.array(["1", "2"])])
    values, count = _column("null", places, "2000-01-01", "infinity")
    assert (values.null_count, count) == (1, 1)
    values, count = _column("truncate", places, "-infinity", "infinity")
    assert (values.null_count, count) == (0, 2)


def test_what_was_deleted_does_not_count() -> None:
    places = RowPlaces([pa.array(["1"])], counts=np.array([False]))
    assert _column("refuse", places, "infinity")[1] == 0


def test_a_value_of_the_key_is_refused_whatever_the_policy_says() -> None:
    keyed = replace(DAYS, key=(1,))
    typing = ColumnTyping(NARROW, "null")
    with pytest.raises(TableRefused, match="does not fit"):
        typing.column(keyed, 1, pa.array(["infinity"]), RowPlaces([pa.array(["infinity"])]))


@pytest.mark.parametrize(
    ("name", "modifier", "is_array", "plain"),
    [
        ("bigint", "", False, "int8"),
        ("timestamp", "(3) with time zone", False, "timestamptz"),
        ("timestamp with time zone", "", True, "timestamptz[]"),
        ("time", "(3) without time zone", False, "time"),
        ("numeric", "(12,2)", True, "numeric(12,2)[]"),
        ("numeric", "", False, "text"),
        ("character varying", "(3)", True, "text[]"),
        ("box", "", True, "text"),
        ("interval", "", False, "text"),
    ],
)
def test_plain_types(name: str, modifier: str, is_array: bool, plain: str) -> None:
    kind = TypeName("pg_catalog", name, modifier, is_array)
    assert plain_type(ColumnDefinition(1, "x", kind), ()) == plain


def test_plain_types_of_domains_enums_and_extensions() -> None:
    integers = TypeName("pg_catalog", "integer", is_array=True)
    types = [
        TypeDefinition("public", "small", "domain", base=TypeName("pg_catalog", "smallint")),
        TypeDefinition("public", "smaller", "domain", base=TypeName("public", "small")),
        TypeDefinition("public", "many", "domain", base=integers),
        TypeDefinition("public", "mood", "enum", labels=("calm",)),
    ]

    def plain(name: str, *, is_array: bool = False) -> str:
        kind = TypeName("public", name, is_array=is_array)
        return plain_type(ColumnDefinition(1, "x", kind), types)

    assert [plain("small"), plain("smaller"), plain("many")] == ["int2", "int2", "int4[]"]
    assert [plain("small", is_array=True), plain("many", is_array=True)] == ["int2[]", "text"]
    assert [plain("mood"), plain("mood", is_array=True)] == ["text", "text[]"]
    assert [plain("vector", is_array=True), plain("citext", is_array=True)] == ["text", "text[]"]


def test_rows_as_texts_are_equal_where_rows_are() -> None:
    columns = [pa.array(["a", "a=", None, ""]), pa.array(["b", "b", "", None])]
    texts = row_texts(columns, 4).to_pylist()
    assert len(set(texts)) == 4
    assert row_texts([], 2).to_pylist() == ["", ""]
