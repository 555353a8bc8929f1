"""Integers, floats, booleans, numeric, bytea and uuid against plain Python."""

from __future__ import annotations

import math
import struct
import uuid
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.decode.typed import TypedColumn, decode_text
from penstock.model.errors import DecodeError
from penstock.model.pg_types import builtin_type

INT2, INT4, INT8, OID, XID8 = 21, 23, 20, 26, 5069
FLOAT4, FLOAT8, BOOL, NUMERIC, BYTEA, UUID = 700, 701, 16, 1700, 17, 2950


def decode(texts: list[str | None], oid: int, typmod: int = -1) -> TypedColumn:
    """Decode the texts as a slice of a longer array: offsets must not matter."""
    found = builtin_type(oid)
    assert found is not None
    return decode_text(
        pa.array(["☃", *texts, "☃☃"], pa.string()).slice(1, len(texts)), found, typmod
    )


def numeric(precision: int, scale: int) -> int:
    return ((precision << 16) | (scale & 0x7FF)) + 4


RANGES = [
    (INT2, -(2**15), 2**15 - 1),
    (INT4, -(2**31), 2**31 - 1),
    (INT8, -(2**63), 2**63 - 1),
    (OID, 0, 2**32 - 1),
    (XID8, 0, 2**64 - 1),
]


@pytest.mark.parametrize(("oid", "low", "high"), RANGES)
@settings(deadline=None)
@given(data=st.data())
def test_integers_round_trip(oid: int, low: int, high: int, data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.none() | st.integers(low, high)))
    texts = [None if number is None else str(number) for number in numbers]
    assert decode(texts, oid).values.to_pylist() == numbers


@pytest.mark.parametrize(("oid", "low", "high"), RANGES)
def test_integers_out_of_range_are_refused(oid: int, low: int, high: int) -> None:
    assert decode([str(low), str(high)], oid).values.to_pylist() == [low, high]
    for number in (low - 1, high + 1, 10**30):
        with pytest.raises(DecodeError):
            decode(["1", str(number)], oid)


@pytest.mark.parametrize("text", ["", "-", "+1", " 1", "1 ", "0x1F", "1_0", "1.0", "1e3", "\u0661"])
@pytest.mark.parametrize("oid", [INT2, INT8, OID])
def test_integers_take_only_what_postgres_writes(oid: int, text: str) -> None:
    with pytest.raises(DecodeError):
        decode([None, text], oid)


def test_bytes_under_a_null_do_not_matter() -> None:
    offsets, content = pa.array([0, 1, 5, 6], pa.int32()), b"1oops2"
    buffers = [pa.py_buffer(b"\x05"), offsets.buffers()[1], pa.py_buffer(content)]
    texts = pa.Array.from_buffers(pa.string(), 3, buffers)
    for oid, typmod in ((INT8, -1), (FLOAT8, -1), (NUMERIC, numeric(5, 0))):
        found = builtin_type(oid)
        assert found is not None
        assert decode_text(texts, found, typmod).values.to_pylist() == [1, None, 2]


def float_text(python: str) -> str:
    """Python's shortest spelling as Postgres spells it: without a fraction of zero."""
    names = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    return names.get(python, python.removesuffix(".0"))


@settings(deadline=None)
@given(st.lists(st.none() | st.floats()))
def test_double_precision_round_trips_to_the_bit(numbers: list[float | None]) -> None:
    texts = [None if number is None else float_text(repr(number)) for number in numbers]
    for read, number in zip(decode(texts, FLOAT8).values.to_pylist(), numbers, strict=True):
        if number is None:
            assert read is None
        elif math.isnan(number):
            assert math.isnan(read)
        else:
            assert struct.pack("d", read) == struct.pack("d", number)


@settings(deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_real_round_trips_to_the_bit(numbers: list[float]) -> None:
    texts: list[str | None] = [float_text(str(np.float32(number))) for number in numbers]
    assert [struct.pack("f", v) for v in decode(texts, FLOAT4).values.to_pylist()] == [
        struct.pack("f", number) for number in numbers
    ]


def test_floats_as_postgres_18_wrote_them() -> None:
    texts: list[str | None] = ["1e+20", "1.2345678901234568e+17", "-0", "5e-324", "1e-07", "0.1"]
    values = decode(texts, FLOAT8).values.to_pylist()
    assert values == [1e20, 123456789012345678.0, 0.0, 5e-324, 1e-7, 0.1]
    assert math.copysign(1, values[2]) == -1
    assert decode(["3.4028235e+38", "1e-45"], FLOAT4).values.to_pylist() == [
        3.4028234663852886e38,
        1.401298464324817e-45,
    ]


@pytest.mark.parametrize(
    ("oid", "text"),
    [
        (FLOAT8, "1e400"),  # Arrow alone reads infinity
        (FLOAT8, "1e-400"),  # and zero
        (FLOAT4, "1e39"),
        (FLOAT4, "1e-50"),
        (FLOAT8, "inf"),
        (FLOAT8, "-nan"),
        (FLOAT8, ""),
        (FLOAT8, " 1"),
        (FLOAT8, "1,5"),
    ],
)
def test_floats_that_postgres_does_not_write_are_refused(oid: int, text: str) -> None:
    with pytest.raises(DecodeError):
        decode(["1.5", text, None], oid)


@settings(deadline=None)
@given(st.lists(st.none() | st.booleans()))
def test_booleans_round_trip(values: list[bool | None]) -> None:
    texts = [None if value is None else "t" if value else "f" for value in values]
    assert decode(texts, BOOL).values.to_pylist() == values


@pytest.mark.parametrize(
    "texts", [["true"], ["T"], ["1"], [""], ["tf", ""], ["", "tf"], ["t", "x"]]
)
def test_booleans_are_t_or_f(texts: list[str | None]) -> None:
    with pytest.raises(DecodeError):
        decode(texts, BOOL)


@st.composite
def modifiers(draw: st.DrawFn) -> tuple[int, int]:
    precision = draw(st.integers(1, 76))
    return precision, draw(st.integers(0, precision))


@settings(deadline=None)
@given(modifiers(), st.data())
def test_decimals_round_trip(modifier: tuple[int, int], data: st.DataObject) -> None:
    precision, scale = modifier
    most = 10**precision - 1
    numbers = data.draw(
        st.lists(st.none() | st.sampled_from([-most, most]) | st.integers(-most, most))
    )
    texts = [None if number is None else decimal_text(number, scale) for number in numbers]
    column = decode(texts, NUMERIC, numeric(precision, scale))
    assert column.unrepresentable is None
    assert [None if v is None else str(v) for v in as_text(column)] == texts


def decimal_text(unscaled: int, scale: int) -> str:
    digits = str(abs(unscaled)).rjust(scale + 1, "0")
    sign = "-" if unscaled < 0 else ""
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else sign + digits


def as_text(column: TypedColumn) -> list[str | None]:
    return [None if v is None else format(v, "f") for v in column.values.to_pylist()]


@settings(deadline=None)
@given(modifiers(), st.integers(1, 10**90), st.booleans())
def test_decimals_with_too_many_digits_are_refused(
    modifier: tuple[int, int], excess: int, negative: bool
) -> None:
    # Arrow's own cast wraps around from 39 (77) digits on.
    precision, scale = modifier
    unscaled = 10**precision - 1 + excess
    with pytest.raises(DecodeError):
        decode(
            [decimal_text(-unscaled if negative else unscaled, scale)],
            NUMERIC,
            numeric(precision, scale),
        )


@settings(deadline=None)
@given(
    st.integers(1, 76),
    st.integers(0, 76),
    st.from_regex(r"-?[0-9]{1,90}(\.[0-9]{1,90})?", fullmatch=True),
)
def test_any_decimal_text_gives_its_value_or_an_error(
    precision: int, scale: int, text: str
) -> None:
    scale = min(precision, scale)
    whole, _, fraction = text.lstrip("-").partition(".")
    fits = len(whole.lstrip("0")) <= precision - scale and len(fraction.rstrip("0")) <= scale
    if fits:
        column = decode([text, None], NUMERIC, numeric(precision, scale))
        assert column.values.to_pylist() == [Decimal(text), None]
    else:
        with pytest.raises(DecodeError):
            decode([text, None], NUMERIC, numeric(precision, scale))


def test_numeric_as_postgres_18_wrote_it() -> None:
    assert as_text(decode(["12345.68", "NaN", None], NUMERIC, numeric(10, 2))) == [
        "12345.68",
        None,
        None,
    ]
    assert decode(["12300"], NUMERIC, numeric(5, -2)).values.to_pylist() == [Decimal(12300)]
    assert decode(["0.00123"], NUMERIC, numeric(3, 5)).values.to_pylist() == [Decimal("0.00123")]
    assert decode(["-0.001"], NUMERIC, numeric(3, 3)).values.to_pylist() == [Decimal("-0.001")]
    texts: list[str | None] = ["NaN", "Infinity", "1" * 2000 + "." + "2" * 500, None]
    assert decode(texts, NUMERIC).values.to_pylist() == texts


def test_nan_in_a_decimal_column_is_unrepresentable_not_null() -> None:
    column = decode(["1.00", "NaN", None, "Infinity", "-2.50"], NUMERIC, numeric(10, 2))
    assert column.values.to_pylist() == [Decimal("1.00"), None, None, None, Decimal("-2.50")]
    assert column.unrepresentable is not None
    assert column.unrepresentable.to_pylist() == [False, True, False, True, False]
    only = decode(["NaN", None], NUMERIC, numeric(10, 2))
    assert only.values.type == pa.decimal128(10, 2)
    assert only.unrepresentable is not None
    assert only.unrepresentable.to_pylist() == [True, False]


@pytest.mark.parametrize(
    "text",
    ["", "-", ".", "+1.00", "1e3", "1,00", "1.00.0", "1-2.00", "nan", " 1.00", "--1.00", "1.239"],
)
def test_decimals_that_postgres_does_not_write_are_refused(text: str) -> None:
    for texts in ([text], ["1.00", text], ["NaN", text]):
        with pytest.raises(DecodeError):
            decode(list(texts), NUMERIC, numeric(10, 2))


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=40)))
def test_bytea_round_trips(values: list[bytes | None]) -> None:
    texts = [None if value is None else "\\x" + value.hex() for value in values]
    column = decode(texts, BYTEA)
    column.values.validate(full=True)
    assert column.values.to_pylist() == values


@pytest.mark.parametrize(
    "texts",
    [
        ["\\x1"],
        ["\\xAB"],
        ["\\xzz"],
        ["ab"],
        [""],
        ["\\x", ""],
        ["\\000"],
        ["\\x\\x"],
        ["\\x1", "\\x2"],  # together of even length
        ["\\x12\\x", "34"],  # together with two prefixes
        ["x\\"],
    ],
)
def test_bytea_that_is_not_hex_is_refused(texts: list[str | None]) -> None:
    with pytest.raises(DecodeError):
        decode(texts, BYTEA)
    with pytest.raises(DecodeError):
        decode(["\\x00", None, *texts], BYTEA)


@settings(deadline=None)
@given(st.lists(st.none() | st.uuids()))
def test_uuids_round_trip(values: list[uuid.UUID | None]) -> None:
    texts = [None if value is None else str(value) for value in values]
    column = decode(texts, UUID)
    assert column.values.to_pylist() == [None if v is None else v.bytes for v in values]


@pytest.mark.parametrize(
    "texts",
    [
        [""],
        ["3a60f058fbd34c7c8caba6b254a2f749"],
        ["3A60F058-FBD3-4C7C-8CAB-A6B254A2F749"],
        ["3a60f058-fbd3-4c7c-8cab-a6b254a2f74"],
        ["3a60f058-fbd3-4c7c-8cab+a6b254a2f749"],
        ["3a60f058-fbd3-4c7c-8cab-a6b254a2f74g"],
        ["3a60f058-fbd3-4c7c-8cab-a6b254a2f74", "93a60f058-fbd3-4c7c-8cab-a6b254a2f749"],
    ],
)
def test_uuids_have_one_spelling(texts: list[str | None]) -> None:
    with pytest.raises(DecodeError):
        decode(texts, UUID)
