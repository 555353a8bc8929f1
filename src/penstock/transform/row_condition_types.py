"""Types in row conditions: which SQL type a column has, and the value of a literal in a type."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any
from typing import Literal as OneOf

import numpy as np
import pyarrow as pa

from penstock.config.row_condition_tree import ConditionError, Literal
from penstock.decode.types.binary import UUID
from penstock.decode.types.numbers import decimal_type
from penstock.model.pg_types import numeric_modifier, type_name
from penstock.model.table_schema import ColumnSchema

Family = OneOf[
    "boolean", "integer", "numeric", "float", "quotient", "text", "bpchar", "enum",
    "date", "timestamp", "timestamptz", "time", "uuid", "bytea", "unknown", "other",
]  # fmt: skip

MOST_DIGITS = 76
"""That an Arrow decimal holds."""


@dataclass(frozen=True)
class SqlType:
    """A type as comparisons and operators tell them apart.

    ``bits`` are those of integers and floats; ``whole`` and ``scale`` the digits before and behind
    a numeric's point. ``unbounded``: a numeric without precision, of which values with more digits
    than that are not decided. ``bytewise``: text with COLLATE "C". The quotient of two numerics
    has a family of its own, since Postgres rounds it; a text literal is ``unknown`` until
    something beside it says more; ``other`` can be tested for null alone.
    """

    family: Family
    name: str
    bits: int = 0
    whole: int = 0
    scale: int = 0
    unbounded: bool = False
    bytewise: bool = False

    @property
    def digits(self) -> int:
        return self.whole + self.scale

    @property
    def decimal(self) -> pa.DataType:
        digits = max(self.digits, 1)
        make = pa.decimal128 if digits <= 38 else pa.decimal256
        return make(digits, self.scale)


def numeric(whole: int, scale: int, unbounded: bool = False) -> SqlType:
    return SqlType("numeric", "numeric", whole=whole, scale=scale, unbounded=unbounded)


UNBOUNDED = numeric(38, 38, unbounded=True)
# The product of two still fits, and so does the largest bigint.
UNBOUNDED_OPERAND = numeric(19, 17, unbounded=True)
BOOLEAN, TEXT, UNKNOWN = (SqlType(f, f) for f in ("boolean", "text", "unknown"))
INT2, INT4, INT8 = (
    SqlType("integer", name, bits)
    for name, bits in (("smallint", 16), ("integer", 32), ("bigint", 64))
)
FLOAT4, FLOAT8 = SqlType("float", "real", 32), SqlType("float", "double precision", 64)
QUOTIENT = SqlType("quotient", "quotient of numerics", 64)
TIMESTAMP = SqlType("timestamp", "timestamp")

_BY_OID = {
    16: BOOLEAN,
    17: SqlType("bytea", "bytea"),
    19: TEXT,  # name
    20: INT8,
    21: INT2,
    23: INT4,
    25: TEXT,
    700: FLOAT4,
    701: FLOAT8,
    1042: SqlType("bpchar", "character"),
    1043: TEXT,  # varchar
    1082: SqlType("date", "date"),
    1083: SqlType("time", "time"),
    1114: TIMESTAMP,
    1184: SqlType("timestamptz", "timestamptz"),
    2950: SqlType("uuid", "uuid"),
}
_BY_NAME = {
    **{known.name: known for oid, known in _BY_OID.items() if oid != 1042},
    "int": INT4,
    "varchar": TEXT,
    "numeric": UNBOUNDED,
    "decimal": UNBOUNDED,
}


def column_type(column: ColumnSchema) -> SqlType:
    pg_type, typmod = column.type, column.typmod
    while pg_type.kind == "domain" and pg_type.inner is not None:
        pg_type, typmod = pg_type.inner, pg_type.typmod
    if pg_type.kind == "enum":
        return SqlType("enum", pg_type.name)
    if pg_type.kind == "base" and pg_type.oid == 1700:
        modifier = numeric_modifier(typmod)
        decimal = None if modifier is None else decimal_type(*modifier)
        if decimal is None:
            return UNBOUNDED
        return numeric(decimal.precision - decimal.scale, decimal.scale)
    known = _BY_OID.get(pg_type.oid) if pg_type.kind == "base" else None
    return known or SqlType("other", type_name(pg_type, typmod))


def literal_type(literal: Literal) -> SqlType:
    """The type that Postgres gives a literal by itself; a name it does not know is an enum's."""
    if literal.cast:
        named = _BY_NAME.get(literal.cast, SqlType("enum", literal.cast))
        return _digits_of(_decimal(literal)) if named is UNBOUNDED else named
    if not literal.is_number:
        return UNKNOWN
    if re.fullmatch("-?[0-9]+", text := literal.text or ""):
        for integer in (INT4, INT8):
            # Postgres takes a sign for an operator: the smallest number is of the next type.
            if abs(int(text)) < 2 ** (integer.bits - 1):
                return integer
    return _digits_of(_decimal(literal))


def literal_value(literal: Literal, type: SqlType) -> Any:  # noqa: A002
    """The value as ``row_condition_values`` holds one of its type: a NumPy or an Arrow scalar."""
    if literal.text is None:
        return _null(type)
    value = _VALUES[type.family](literal, type)
    if value is None:
        raise ConditionError(
            f"{literal.text!r} is no {type.name}{_HINTS.get(type.family, '')}", literal.at
        )
    return value


def _null(type: SqlType) -> Any:  # noqa: A002
    if type.family == "numeric":
        return pa.scalar(None, type.decimal)
    if type.family == "boolean":
        return np.False_
    arrow = _ARROW.get(type.family)
    return np.int64(0) if arrow is None else pa.scalar(None, arrow)


_ARROW = {
    "text": pa.string(),
    "bpchar": pa.string(),
    "enum": pa.string(),
    "uuid": UUID,
    "bytea": pa.binary(),
}
_HINTS = {
    "date": " such as 2024-12-31",
    "timestamp": " such as 2024-12-31 23:59:59",
    "timestamptz": " such as 2024-12-31 23:59:59+00",
    "time": " such as 23:59:59",
    "bytea": r" such as \x00ff",
}
_TRUE, _FALSE = {"t", "true", "y", "yes", "on", "1"}, {"f", "false", "n", "no", "off", "0"}
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_INTEGER = re.compile(r"[+-]?[0-9]+")
_NOT_FINITE = {"nan": "nan", "infinity": "inf", "-infinity": "-inf", "inf": "inf", "-inf": "-inf"}
_DAY = r"(\d{4}-\d\d-\d\d)"
_CLOCK = r"(\d\d):(\d\d)(?::(\d\d)(?:\.(\d{1,6}))?)?"
_ZONE = r"\s?(Z|[+-]\d\d(?::?\d\d)?)?"
_UUID = re.compile(r"\{?[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}(\1[0-9a-fA-F]{4}){2}\1[0-9a-fA-F]{12}\}?")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _decimal(literal: Literal) -> Decimal:
    text = (literal.text or "0").strip()
    if not _NUMBER.fullmatch(text):
        raise ConditionError(f"{text!r} is no number that a condition can hold", literal.at)
    return Decimal(text)


def _digits_of(number: Decimal) -> SqlType:
    _sign, digits, exponent = number.as_tuple()
    power = int(exponent)
    return numeric(max(len(digits) + power, 0), max(-power, 0))


def _boolean(literal: Literal, _type: SqlType) -> np.bool_ | None:
    text = str(literal.text).strip().lower()
    return np.bool_(text in _TRUE) if text in _TRUE | _FALSE else None


def _integer(literal: Literal, type: SqlType) -> np.int64 | None:  # noqa: A002
    text = str(literal.text).strip()
    if not _INTEGER.fullmatch(text) or not -(2 ** (type.bits - 1)) <= int(text) < 2 ** (
        type.bits - 1
    ):
        return None
    return np.int64(text)


def _numeric(literal: Literal, type: SqlType) -> pa.Scalar:  # noqa: A002
    number = _decimal(literal)
    own = _digits_of(number)
    if own.digits > MOST_DIGITS or own.whole > type.whole or own.scale > type.scale:
        raise ConditionError(f"{literal.text} has too many digits", literal.at)
    return pa.scalar(number, own.decimal).cast(type.decimal)


def _float(literal: Literal, type: SqlType) -> Any:  # noqa: A002
    text = str(literal.text).strip()
    spelled = _NOT_FINITE.get(text.lower())
    if spelled is None and not _NUMBER.fullmatch(text):
        return None
    arrow, kind = (pa.float32(), np.float32) if type.bits == 32 else (pa.float64(), np.float64)
    value = kind(pa.scalar(spelled or text.lstrip("+")).cast(arrow).as_py())
    return value if spelled or np.isfinite(value) else None


def _text(literal: Literal, type: SqlType) -> pa.Scalar:  # noqa: A002
    text = str(literal.text)
    return pa.scalar(text.rstrip(" ") if type.family == "bpchar" else text, pa.string())


def _date(literal: Literal, _type: SqlType) -> np.int64 | None:
    match = re.fullmatch(_DAY, str(literal.text).strip())
    day = match and _moment(match[1], "00:00:00", UTC)
    return None if day is None else np.int64(day // timedelta(days=1))


def _timestamp(literal: Literal, _type: SqlType) -> np.int64 | None:
    match = re.fullmatch(f"{_DAY}(?:[ T]({_CLOCK}))?", str(literal.text).strip(), re.ASCII)
    return match and _micros(_moment(match[1], match[2], UTC))


def _timestamptz(literal: Literal, _type: SqlType) -> np.int64 | None:
    match = re.fullmatch(f"{_DAY}(?:[ T]({_CLOCK}){_ZONE})?", str(literal.text).strip(), re.ASCII)
    if match is None:
        return None
    zone: timezone = UTC
    if match[7] and match[7] != "Z":
        digits = match[7][1:].replace(":", "").ljust(4, "0")
        offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
        if offset >= timedelta(hours=16):
            return None
        zone = timezone(-offset if match[7][0] == "-" else offset)
    return _micros(_moment(match[1], match[2], zone))


def _time(literal: Literal, _type: SqlType) -> np.int64 | None:
    text = str(literal.text).strip()
    if not re.fullmatch(_CLOCK, text, re.ASCII):
        return None
    return _micros(_moment("1970-01-01", text, UTC))


def _moment(day: str, clock: str | None, zone: timezone) -> timedelta | None:
    """Since 1970, UTC; None where there is no such day or time."""
    try:
        at = time.fromisoformat(clock or "00:00:00")
        return datetime.combine(datetime.fromisoformat(day), at, zone) - _EPOCH
    except ValueError:
        return None


def _micros(since: timedelta | None) -> np.int64 | None:
    return None if since is None else np.int64(since // timedelta(microseconds=1))


def _uuid(literal: Literal, _type: SqlType) -> pa.Scalar | None:
    text = str(literal.text)
    if not _UUID.fullmatch(text) or (text[0] == "{") != (text[-1] == "}"):
        return None
    return pa.scalar(bytes.fromhex(text.strip("{}").replace("-", "")), UUID)


def _bytea(literal: Literal, _type: SqlType) -> pa.Scalar | None:
    text = str(literal.text)
    if not re.fullmatch(r"\\x([0-9a-fA-F]{2})*", text):
        return None
    return pa.scalar(bytes.fromhex(text[2:]), pa.binary())


_VALUES: dict[str, Callable[[Literal, SqlType], Any]] = {
    "boolean": _boolean,
    "integer": _integer,
    "numeric": _numeric,
    "float": _float,
    "quotient": _float,
    "text": _text,
    "bpchar": _text,
    "enum": _text,
    "date": _date,
    "timestamp": _timestamp,
    "timestamptz": _timestamptz,
    "time": _time,
    "uuid": _uuid,
    "bytea": _bytea,
}
