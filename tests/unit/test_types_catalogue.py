"""Which Arrow type a Postgres type has, and how types are spelled."""

from __future__ import annotations

import pyarrow as pa
import pytest

from penstock.decode.typed import arrow_field, arrow_type, decode_text, parse_array
from penstock.model.errors import DecodeError
from penstock.model.pg_types import builtin_type, numeric_modifier, type_name
from penstock.model.table_schema import ColumnSchema, PgType

# oid, name, kind, inner oid: from pg_type of a Postgres 18, the same in a 14.
SEEN_IN_PG_TYPE = [
    (16, "bool", "base", None),
    (18, "char", "base", None),
    (271, "_xid8", "array", 5069),
    (1231, "_numeric", "array", 1700),
    (1020, "_box", "array", 603),
    (22, "int2vector", "base", None),
    (1006, "_int2vector", "array", 22),
    (3904, "int4range", "range", None),
    (3913, "_daterange", "array", 3912),
    (4536, "int8multirange", "multirange", None),
    (6157, "_int8multirange", "array", 4536),
    (5069, "xid8", "base", None),
]


@pytest.mark.parametrize(("oid", "name", "kind", "inner"), SEEN_IN_PG_TYPE)
def test_built_in_types_are_those_of_pg_type(
    oid: int, name: str, kind: str, inner: int | None
) -> None:
    found = builtin_type(oid)
    assert found is not None
    assert (found.oid, found.name, found.kind) == (oid, name, kind)
    assert (found.inner.oid if found.inner else None) == inner


@pytest.mark.parametrize("oid", [0, 2249, 16384, 71, -1])
def test_pseudo_user_and_row_types_are_not_built_in(oid: int) -> None:
    assert builtin_type(oid) is None


# What format_type of Postgres 18 says of these, but for the long spellings of SQL.
SPELLINGS = [
    (1700, 655366, "numeric(10,2)"),
    (1700, 329730, "numeric(5,-2)"),
    (1700, 196617, "numeric(3,5)"),
    (1700, 2490372, "numeric(38,0)"),
    (1700, -1, "numeric"),
    (1231, 655366, "numeric(10,2)[]"),
    (1043, 36, "varchar(32)"),
    (1015, 14, "varchar(10)[]"),
    (1042, 5, "bpchar(1)"),
    (1042, -1, "bpchar"),
    (18, -1, '"char"'),
    (1114, 3, "timestamp(3)"),
    (1184, 0, "timestamptz(0)"),
    (1560, 3, "bit(3)"),
    (1186, -1, "interval"),
    (1186, 2147418115, "interval(3)"),
    (1186, 327679, "interval year"),
    (1186, 458751, "interval year to month"),
    (1186, 470286338, "interval day to second(2)"),
    (1186, 268435459, "interval second(3)"),
]


@pytest.mark.parametrize(("oid", "typmod", "spelled"), SPELLINGS)
def test_types_are_spelled_with_their_modifier(oid: int, typmod: int, spelled: str) -> None:
    found = builtin_type(oid)
    assert found is not None
    assert type_name(found, typmod) == spelled


def test_numeric_modifier() -> None:
    assert numeric_modifier(655366) == (10, 2)
    assert numeric_modifier(329730) == (5, -2)
    assert numeric_modifier(-1) is None


def numeric(precision: int, scale: int) -> int:
    return ((precision << 16) | (scale & 0x7FF)) + 4


ARROW_TYPES = [
    (21, -1, pa.int16()),
    (26, -1, pa.uint32()),
    (5069, -1, pa.uint64()),
    (700, -1, pa.float32()),
    (1700, numeric(38, 10), pa.decimal128(38, 10)),
    (1700, numeric(39, 0), pa.decimal256(39, 0)),
    (1700, numeric(76, 76), pa.decimal256(76, 76)),
    (1700, numeric(77, 0), pa.string()),
    (1700, numeric(5, -2), pa.decimal128(7, 0)),
    (1700, numeric(3, 5), pa.decimal128(5, 5)),
    (1700, numeric(70, -7), pa.string()),
    (1700, -1, pa.string()),
    (1231, numeric(10, 2), pa.list_(pa.decimal128(10, 2))),
    (1184, 3, pa.timestamp("us", tz="UTC")),
    (1266, -1, pa.string()),
    (1186, -1, pa.month_day_nano_interval()),
    (2950, -1, pa.binary(16)),
    (3802, -1, pa.string()),
    (869, -1, pa.string()),
    (3904, -1, pa.string()),
    (22, -1, pa.string()),
    (3905, -1, pa.list_(pa.string())),
]


@pytest.mark.parametrize(("oid", "typmod", "expected"), ARROW_TYPES)
def test_arrow_types(oid: int, typmod: int, expected: pa.DataType) -> None:
    found = builtin_type(oid)
    assert found is not None
    assert arrow_type(found, typmod) == expected
    for texts in ([], [None, None]):
        empty = decode_text(pa.array(texts, pa.string()), found, typmod)
        assert empty.values.type == expected
        assert empty.values.null_count == len(texts) == len(empty.values)
        assert empty.unrepresentable is None


def builtin(oid: int) -> PgType:
    found = builtin_type(oid)
    assert found is not None
    return found


def test_a_domain_is_its_base_type_under_its_own_modifier() -> None:
    price = PgType(16500, "price", "domain", builtin(1700), numeric(10, 2))
    nested = PgType(16501, "net_price", "domain", price)
    prices = PgType(16502, "_price", "array", price)
    over_array = PgType(16503, "tags", "domain", builtin(1009))
    assert arrow_type(price) == arrow_type(nested) == pa.decimal128(10, 2)
    assert arrow_type(prices) == pa.list_(pa.decimal128(10, 2))
    assert arrow_type(over_array) == pa.list_(pa.string())
    assert type_name(prices) == "price[]"
    values = decode_text(pa.array(["{1.50,2.25}"]), prices).values
    assert [str(value) for value in values[0].as_py()] == ["1.50", "2.25"]
    assert parse_array("{a,b}", over_array).texts.to_pylist() == ["a", "b"]


def test_enums_and_composites_are_text_and_so_are_their_elements() -> None:
    mood = PgType(16600, "mood", "enum")
    pair = PgType(16601, "pair", "composite")
    assert decode_text(pa.array(["happy"]), mood).values.to_pylist() == ["happy"]
    moods = PgType(16602, "_mood", "array", mood)
    assert decode_text(pa.array(["{happy,NULL}"]), moods).values.to_pylist() == [["happy", None]]
    pairs = PgType(16603, "_pair", "array", pair)
    texts = pa.array(['{"(1,\\"a b\\")"}'])
    assert decode_text(texts, pairs).values.to_pylist() == [['(1,"a b")']]


def test_arrays_of_a_type_with_an_unknown_delimiter_stay_text() -> None:
    # PostGIS delimits geometry[] by colons: read with commas it would be one wrong element.
    geometry = PgType(16700, "geometry", "base")
    shapes = PgType(16701, "_geometry", "array", geometry)
    assert arrow_type(shapes) == pa.string()
    assert decode_text(pa.array(["{0101:0102}"]), shapes).values.to_pylist() == ["{0101:0102}"]
    citext = PgType(16710, "_citext", "array", PgType(16709, "citext"))
    assert arrow_type(citext) == pa.list_(pa.string())
    with pytest.raises(DecodeError, match="geometry"):
        parse_array("{0101:0102}", shapes)


def test_a_field_carries_the_postgres_type() -> None:
    column = ColumnSchema("price", builtin(1700), numeric(10, 2))
    field = arrow_field("price", column, nullable=False)
    assert field.type == pa.decimal128(10, 2)
    assert field.metadata == {b"postgres.type": b"numeric(10,2)"}
    assert not field.nullable
    assert arrow_field("p", column).nullable


def test_text_types_pass_through_unchanged() -> None:
    texts = pa.array([" a ", "", None, "é\n{"])
    for oid in (18, 19, 25, 114, 142, 790, 869, 1042, 1043, 1266, 1560, 3220, 3614, 3802, 3904):
        decoded = decode_text(texts, builtin(oid))
        assert decoded.values.equals(texts)
        assert decoded.unrepresentable is None


def test_the_error_names_type_row_and_a_shortened_value() -> None:
    texts = pa.array(["1", None, "2", "x" * 5000, "y"])
    with pytest.raises(DecodeError) as caught:
        decode_text(texts, builtin(20))
    message = caught.value.message
    assert "int8" in message
    assert "row 3" in message
    assert "5000 characters" in message
    assert len(message) < 300
    assert caught.value.remedy


def test_only_string_arrays_are_taken() -> None:
    with pytest.raises(TypeError, match="binary"):
        decode_text(pa.array([b"1"]), builtin(20))
    with pytest.raises(TypeError, match="int8"):
        parse_array("{1}", builtin(20))
