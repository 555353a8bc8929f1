"""Types in row conditions: which SQL type a column has, and the value of a literal in a type."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from typing import Literal as OneOf

import pyarrow as pa

from penstock.config.row_condition_tree import ConditionError, Literal
from penstock.decode.types import dates
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

_ARROW = {
    "boolean": pa.bool_(),
    "integer": pa.int64(),
    "bytea": pa.binary(),
    "uuid": UUID,
    "date": pa.date32(),
    "time": dates.TIME,
    "timestamp": dates.TIMESTAMP,
    "timestamptz": dates.TIMESTAMPTZ,
}


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
    def arrow(self) -> pa.DataType:
        """What holds its values while a condition runs."""
        if self.family == "numeric":
            digits = max(self.digits, 1)
            return (pa.decimal128 if digits <= 38 else pa.decimal256)(digits, self.scale)
        if self.family in ("float", "quotient"):
            return pa.float32() if self.bits == 32 else pa.float64()
        return _ARROW.get(self.family, pa.string())

    def __str__(self) -> str:
        return f"{'an' if self.name[0] in 'aeiou' else 'a'} {self.name}"


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


def literal_value(literal: Literal, kind: SqlType) -> pa.Scalar:
    """The literal in a type. Raises ConditionError where it is none of its values."""
    if literal.text is None:
        return pa.scalar(None, kind.arrow)
    if kind.family == "numeric":
        number = _decimal(literal)
        own = _digits_of(number)
        if own.digits > MOST_DIGITS or own.whole > kind.whole or own.scale > kind.scale:
            raise ConditionError(f"{literal.text} has too many digits", literal.at)
        return pa.scalar(number, own.arrow).cast(kind.arrow)
    try:
        return pa.scalar(_value(literal.text, kind), kind.arrow)
    except (ValueError, LookupError):
        hint = f" such as {_SUCH_AS[kind.family]}" if kind.family in _SUCH_AS else ""
        raise ConditionError(f"{literal.text!r} is no {kind.name}{hint}", literal.at) from None


_SUCH_AS = {
    "date": "2024-12-31",
    "timestamp": "2024-12-31 23:59:59",
    "timestamptz": "2024-12-31 23:59:59+00",
    "time": "23:59:59",
    "bytea": r"\x00ff",
}
_BOOLEANS = {
    **dict.fromkeys(("t", "true", "y", "yes", "on", "1"), True),
    **dict.fromkeys(("f", "false", "n", "no", "off", "0"), False),
}
_NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?"
_NOT_FINITE = {"nan": "nan", "infinity": "inf", "-infinity": "-inf", "inf": "inf", "-inf": "-inf"}
_DAY = r"\d{4}-\d\d-\d\d"
_CLOCK = r"\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?"
_ZONE = r"\s?(?:Z|[+-]\d\d(?::?\d\d)?)?"
_WRITTEN = {
    "integer": "[+-]?[0-9]+",
    "date": _DAY,
    "time": _CLOCK,
    "timestamp": f"{_DAY}(?:[ T]{_CLOCK})?",
    "timestamptz": f"{_DAY}(?:[ T]{_CLOCK}{_ZONE})?",
    "uuid": r"(\{)?[0-9a-fA-F]{8}(-?)[0-9a-fA-F]{4}(\2[0-9a-fA-F]{4}){2}\2[0-9a-fA-F]{12}(?(1)\})",
    "bytea": r"\\x([0-9a-fA-F]{2})*",
}


def _value(text: str, kind: SqlType) -> Any:
    """What Postgres takes of a literal, as far as it does not depend on settings. Raises ValueError
    or LookupError for all else.
    """
    if kind.family not in ("text", "bpchar", "enum", "unknown", "uuid", "bytea"):
        text = text.strip()
    if (form := _WRITTEN.get(kind.family)) and not re.fullmatch(form, text, re.ASCII):
        raise ValueError(text)
    match kind.family:
        case "boolean":
            return _BOOLEANS[text.lower()]
        case "integer":
            if not -(2 ** (kind.bits - 1)) <= int(text) < 2 ** (kind.bits - 1):
                raise ValueError(text)
            return int(text)
        case "float" | "quotient":
            return _float(text, kind)
        case "bpchar":
            return text.rstrip(" ")
        case "date":
            return date.fromisoformat(text)
        case "time":
            return time.fromisoformat(text)
        case "timestamp":
            return datetime.fromisoformat(text)
        case "timestamptz":
            at = datetime.fromisoformat(re.sub(r"\s(?=[Z+-])", "", text))
            if abs(at.utcoffset() or timedelta()) >= timedelta(hours=16):
                raise ValueError(text)
            return at if at.tzinfo else at.replace(tzinfo=UTC)
        case "uuid":
            return bytes.fromhex(text.strip("{}").replace("-", ""))
        case "bytea":
            return bytes.fromhex(text[2:])
    return text


def _float(text: str, kind: SqlType) -> float:
    spelled = _NOT_FINITE.get(text.lower())
    if spelled is None and not re.fullmatch(_NUMBER, text):
        raise ValueError(text)
    # By way of Arrow, which rounds to a real at once, not by way of a double.
    value: float = pa.scalar(spelled or text.lstrip("+")).cast(kind.arrow).as_py()
    if not spelled and value in (float("inf"), float("-inf")):
        raise ValueError(text)
    return value


def _decimal(literal: Literal) -> Decimal:
    text = (literal.text or "0").strip()
    if not re.fullmatch(_NUMBER, text):
        raise ConditionError(f"{text!r} is no number that a condition can hold", literal.at)
    return Decimal(text)


def _digits_of(number: Decimal) -> SqlType:
    _sign, digits, exponent = number.as_tuple()
    power = int(exponent)
    return numeric(max(len(digits) + power, 0), max(-power, 0))
