"""Values in Debezium's forms: for any value the column's way equals a slow and obvious one."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.destination.encode.debezium import defaults as debezium_defaults
from penstock.destination.encode.debezium.base64 import base64_of_binary, base64_of_decimals
from penstock.destination.encode.debezium.options import DebeziumOptions
from penstock.destination.encode.debezium.types import form_of
from penstock.model.errors import DecodeError
from penstock.model.pg_types import builtin_type
from penstock.model.table_schema import PgType

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _type(name: str) -> PgType:
    return next(t for oid in range(16, 7000) if (t := builtin_type(oid)) and t.name == name)


def _numeric(precision: int, scale: int) -> int:
    return ((precision << 16) | scale) + 4


def _written(texts: list[str | None], name: str, typmod: int = -1, **options: Any) -> list[Any]:
    chosen = DebeziumOptions(server="s", database="d", **options)
    form = form_of(_type(name), typmod, chosen)
    tokens = form.write(pa.array(texts, pa.string())).tokens().to_pylist()
    return [json.loads(token) for token in tokens]


def _base64(number: int) -> str:
    """As java.math.BigInteger.toByteArray has it."""
    length = (number if number >= 0 else ~number).bit_length() // 8 + 1
    return base64.b64encode(number.to_bytes(length, "big", signed=True)).decode()


def _texts(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    return st.lists(st.none() | strategy, min_size=1, max_size=20)


@given(_texts(st.integers(-(2**63), 2**63 - 1)))
def test_integers(numbers: list[int | None]) -> None:
    texts = [None if number is None else str(number) for number in numbers]
    assert _written(texts, "int8") == numbers


@given(_texts(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))))
def test_texts(texts: list[str | None]) -> None:
    assert _written(texts, "text") == texts
    assert _written(texts, "jsonb") == texts


@given(_texts(st.floats(width=64)))
def test_floats(numbers: list[float | None]) -> None:
    names = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
    texts = [None if n is None else names.get(repr(n), repr(n)) for n in numbers]
    wanted = [t if t in names.values() else n for t, n in zip(texts, numbers, strict=True)]
    assert _written(texts, "float8") == wanted


@pytest.mark.parametrize(("precision", "scale"), [(10, 2), (18, 0), (38, 10), (60, 5)])
@given(st.data())
def test_numerics_with_a_scale(precision: int, scale: int, data: st.DataObject) -> None:
    most = 10**precision - 1
    digits: list[int | None] = data.draw(_texts(st.integers(-most, most)))
    texts = [None if n is None else f"{Decimal(n).scaleb(-scale):.{scale}f}" for n in digits]
    if precision > 28:  # a Decimal of the default context would be rounded
        texts = [None if n is None else _pointed(n, scale) for n in digits]
    typmod = _numeric(precision, scale)
    assert _written(texts, "numeric", typmod) == [None if n is None else _base64(n) for n in digits]
    assert _written(texts, "numeric", typmod, decimals="string") == texts
    doubles = _written(texts, "numeric", typmod, decimals="double")
    assert [None if n is None else float(n) for n in doubles] == [
        None if text is None else float(text) for text in texts
    ]


def _pointed(digits: int, scale: int) -> str:
    text = f"{abs(digits):0{scale + 1}}"
    sign = "-" if digits < 0 else ""
    return f"{sign}{text[:-scale]}.{text[-scale:]}" if scale else f"{sign}{text}"


@given(_texts(st.tuples(st.integers(-(10**50), 10**50), st.integers(0, 30))))
def test_numerics_of_any_scale(numbers: list[tuple[int, int] | None]) -> None:
    texts = [None if number is None else _pointed(*number) for number in numbers]
    wanted: list[Any] = []
    for number in numbers:
        if number is None:
            wanted.append(None)
            continue
        digits, scale = number
        while scale and digits % 10 == 0:
            digits, scale = digits // 10, scale - 1
        wanted.append({"scale": scale, "value": _base64(digits)})
    assert _written(texts, "numeric") == wanted


def test_numerics_of_thousands_of_digits() -> None:
    """Postgres takes 131072 of them before the point; Python's int, of a text, some 4300."""
    text, nines = "9" * 5000, 10**5000 - 1
    (found,) = _written([f"-{text}"], "numeric")
    assert found == {"scale": 0, "value": _base64(-nines)}
    assert _written([text], "numeric", _numeric(1000, 0)) == [_base64(nines)]


def test_numerics_that_are_no_numbers() -> None:
    texts: list[str | None] = ["NaN", "Infinity", "-Infinity", "1.50", None]
    typmod = _numeric(10, 2)
    assert _written(texts, "numeric", typmod) == [None, None, None, "AJY=", None]
    assert _written(texts, "numeric")[:3] == [None, None, None]
    spelled = ["NAN", "POSITIVE_INFINITY", "NEGATIVE_INFINITY", "1.50", None]
    assert _written(texts, "numeric", typmod, decimals="string") == spelled
    doubles = ["NaN", "Infinity", "-Infinity", 1.5, None]
    assert _written(texts, "numeric", typmod, decimals="double") == doubles


def test_a_numeric_with_another_scale_than_its_column_keeps_its_value() -> None:
    texts: list[str | None] = ["1", "1.5", "1.50"]
    assert _written(texts, "numeric", _numeric(10, 2)) == ["ZA==", "AJY=", "AJY="]


@given(_texts(st.dates()))
def test_dates(days: list[date | None]) -> None:
    texts = [None if day is None else day.isoformat() for day in days]
    wanted = [None if day is None else (day - date(1970, 1, 1)).days for day in days]
    assert _written(texts, "date") == wanted
    assert _written(texts, "date", times="connect") == wanted


def _moment_text(moment: datetime, zone: str) -> str:
    """As Postgres writes it: without zeros at the end of the fraction."""
    text = moment.replace(tzinfo=None).isoformat(" ", "microseconds").rstrip("0").rstrip(".")
    return text + zone


@given(_texts(st.datetimes(timezones=st.just(UTC))))
def test_timestamps(moments: list[datetime | None]) -> None:
    texts = [None if moment is None else _moment_text(moment, "") for moment in moments]
    micros = [None if m is None else (m - _EPOCH) // timedelta(microseconds=1) for m in moments]
    millis = [None if number is None else number // 1000 for number in micros]
    assert _written(texts, "timestamp") == micros
    assert _written(texts, "timestamp", times="connect") == millis
    assert _written(texts, "timestamp", 3) == millis


@pytest.mark.parametrize("digits", [0, 1, 3, 6])
@given(st.data())
def test_moments_with_a_zone(digits: int, data: st.DataObject) -> None:
    moments: list[datetime | None] = data.draw(_texts(st.datetimes(timezones=st.just(UTC))))
    step = 10 ** (6 - digits)
    moments = [m and m.replace(microsecond=m.microsecond // step * step) for m in moments]
    texts = [None if moment is None else _moment_text(moment, "+00") for moment in moments]
    wanted = [
        None
        if moment is None
        else moment.replace(tzinfo=None).isoformat("T", "microseconds")[: 20 + digits].rstrip(".")
        + "Z"
        for moment in moments
    ]
    assert _written(texts, "timestamptz", digits) == wanted


def test_moments_outside_of_four_digits_among_others() -> None:
    texts: list[str | None] = [
        *("infinity", "2026-01-15 12:34:56+00", None, "10000-01-01 00:00:00.5+00"),
        *("0044-03-15 12:00:00+00 BC", "-infinity", "0001-01-01 00:00:00+00 BC"),
    ]
    assert _written(texts, "timestamptz") == [
        *("infinity", "2026-01-15T12:34:56.000000Z", None, "+10000-01-01T00:00:00.500000Z"),
        *("-0043-03-15T12:00:00.000000Z", "-infinity", "0000-01-01T00:00:00.000000Z"),
    ]


def test_timestamps_beyond_microseconds() -> None:
    late: list[str | None] = ["294276-12-31 23:59:59.999999"]
    assert _written(late, "timestamp") == [None]
    assert _written(late, "timestamp", times="connect") == [9224318015999999]


@given(_texts(st.integers(0, 86_400_000_000 - 1)))
def test_times_of_day(micros: list[int | None]) -> None:
    texts = [
        None if m is None else _moment_text(_EPOCH + timedelta(microseconds=m), "")[11:]
        for m in micros
    ]
    assert _written(texts, "time") == micros
    millis = [None if m is None else m // 1000 for m in micros]
    assert _written(texts, "time", times="connect") == millis


def test_intervals_beyond_64_bits_are_null() -> None:
    texts: list[str | None] = ["178000000 years", "250000 years", "-2147483648 days", None]
    assert _written(texts, "interval") == [None, 250000 * 12 * 2_629_800_000_000, None, None]


@given(_texts(st.binary(max_size=12)))
def test_bytes(values: list[bytes | None]) -> None:
    texts = [None if value is None else f"\\x{value.hex()}" for value in values]
    plain = [None if value is None else base64.b64encode(value).decode() for value in values]
    assert _written(texts, "bytea") == plain
    digits = [None if value is None else value.hex() for value in values]
    assert _written(texts, "bytea", binary="hex") == digits
    safe = [None if value is None else base64.urlsafe_b64encode(value).decode() for value in values]
    assert _written(texts, "bytea", binary="base64-url-safe") == safe


@given(st.lists(st.binary(max_size=5) | st.none(), min_size=3), st.integers(0, 2))
def test_base64_of_a_slice(values: list[bytes | None], first: int) -> None:
    column = pa.array(values, pa.binary()).slice(first)
    wanted = [None if value is None else base64.b64encode(value).decode() for value in values]
    assert base64_of_binary(column).to_pylist() == wanted[first:]


@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), min_size=1))
def test_base64_of_integers(numbers: list[int]) -> None:
    column = pa.array([Decimal(number) for number in numbers], pa.decimal128(38, 0))
    assert base64_of_decimals(column).to_pylist() == [_base64(number) for number in numbers]


def test_arrays() -> None:
    texts: list[str | None] = ['{a,NULL,"b \\"c\\", {d}"}', "{}", None, "{{a,b},{c,NULL}}"]
    assert _written(texts, "_text") == [
        ["a", None, 'b "c", {d}'],
        [],
        None,
        [["a", "b"], ["c", None]],
    ]
    assert _written(["[0:1]={1.50,-0.01}"], "_numeric", _numeric(10, 2)) == [["AJY=", "/w=="]]


_MODES: list[dict[str, Any]] = [
    {},
    {"decimals": "string", "times": "connect", "intervals": "string", "binary": "hex"},
    {"decimals": "double", "times": "adaptive_time_microseconds", "binary": "base64"},
]


@pytest.mark.parametrize("options", _MODES)
def test_columns_without_values(options: dict[str, Any]) -> None:
    for oid in range(16, 7000):
        if (kind := builtin_type(oid)) is not None:
            form = form_of(kind, -1, DebeziumOptions(server="s", database="d", **options))
            for count in (0, 3):
                texts = pa.nulls(count + 1, pa.string()).slice(1)
                assert form.write(texts).tokens().to_pylist() == ["null"] * count, kind


def test_malformed_values_are_errors() -> None:
    with pytest.raises(DecodeError, match="2026-13-01"):
        _written(["2026-13-01"], "date")


@pytest.mark.parametrize(
    ("default", "text"),
    [
        ("'it''s'::text", "it's"),
        ("E'a\\\\b'::text", "a\\b"),
        ("'-5'::integer", "-5"),
        ("(-5)", "-5"),
        ("1.50", "1.50"),
        ("true", "t"),
        ("B'10'::\"bit\"", "10"),
        ("nextval('t_id_seq'::regclass)", None),
        ("now()", None),
        ("('a'::text || 'b'::text)", None),
    ],
)
def test_defaults(default: str, text: str | None) -> None:
    assert debezium_defaults.constant(default) == text
    assert not debezium_defaults.is_null(default)


def test_a_default_of_null_is_none() -> None:
    assert debezium_defaults.is_null("NULL::character varying")
