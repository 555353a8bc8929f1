"""Postgres text to typed Arrow columns: which Arrow type a Postgres type has, and who reads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import pyarrow as pa

from penstock.decode.types.array_text import split_array
from penstock.decode.types.arrays import decode_array
from penstock.decode.types.binary import UUID, decode_bytea, decode_uuid
from penstock.decode.types.dates import (
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    decode_date,
    decode_time,
    decode_timestamp,
)
from penstock.decode.types.interval import INTERVAL, decode_interval
from penstock.decode.types.numbers import (
    decimal_type,
    decode_boolean,
    decode_decimal,
    decode_float,
    decode_integer,
)
from penstock.decode.types.text_column import Decoder, MalformedTextError, TextColumn, TypedColumn
from penstock.model.errors import DecodeError
from penstock.model.pg_types import FIRST_USER_OID, numeric_modifier, type_name
from penstock.model.table_schema import ColumnSchema, PgType

__all__ = [
    "ArrayValue",
    "TypedColumn",
    "arrow_field",
    "arrow_type",
    "decode_text",
    "parse_array",
]

_STRING = pa.string()
_NUMERIC, _BOX = 1700, 603


@dataclass(frozen=True)
class ArrayValue:
    """One array of any shape: lengths and lower bounds by dimension, elements row by row.

    An empty array has no dimensions. ``texts`` are the elements as Postgres wrote them.
    """

    dimensions: tuple[int, ...]
    lower_bounds: tuple[int, ...]
    values: TypedColumn
    texts: pa.StringArray


@dataclass(frozen=True)
class _Codec:
    """How a type is held in Arrow and read; without a decoder its text is its value."""

    arrow: pa.DataType
    decoder: Decoder | None = None

    def decode(self, text: pa.Array) -> TypedColumn:
        """Raises MalformedTextError or ArrowInvalid, which say nothing about the row."""
        if self.decoder is None:
            return TypedColumn(text)
        if text.null_count == len(text):
            return TypedColumn(pa.nulls(len(text), self.arrow))
        return self.decoder(TextColumn(text))


def _integer(arrow: pa.DataType) -> _Codec:
    return _Codec(arrow, partial(decode_integer, arrow=arrow))


def _float(arrow: pa.DataType) -> _Codec:
    return _Codec(arrow, partial(decode_float, arrow=arrow))


def _timestamp(arrow: pa.DataType) -> _Codec:
    return _Codec(arrow, partial(decode_timestamp, arrow=arrow))


_TEXT = _Codec(_STRING)
_BY_OID = {
    16: _Codec(pa.bool_(), decode_boolean),
    17: _Codec(pa.binary(), decode_bytea),
    20: _integer(pa.int64()),
    21: _integer(pa.int16()),
    23: _integer(pa.int32()),
    26: _integer(pa.uint32()),  # oid
    28: _integer(pa.uint32()),  # xid
    29: _integer(pa.uint32()),  # cid
    700: _float(pa.float32()),
    701: _float(pa.float64()),
    1082: _Codec(pa.date32(), decode_date),
    1083: _Codec(TIME, decode_time),
    1114: _timestamp(TIMESTAMP),
    1184: _timestamp(TIMESTAMPTZ),
    1186: _Codec(INTERVAL, decode_interval),
    2950: _Codec(UUID, decode_uuid),
    5069: _integer(pa.uint64()),  # xid8
}
# Base types from extensions whose arrays are known to be delimited by commas.
_COMMA_DELIMITED = frozenset({"citext", "hstore", "ltree"})


def arrow_type(type: PgType, typmod: int = -1) -> pa.DataType:  # noqa: A002
    """The Arrow type that holds this Postgres type; string where the text is the value."""
    return _codec(type, typmod).arrow


def arrow_field(name: str, column: ColumnSchema, nullable: bool = True) -> pa.Field:
    """A field for the column, with its Postgres type as SQL spells it in the metadata."""
    spelled = type_name(column.type, column.typmod)
    return pa.field(
        name,
        arrow_type(column.type, column.typmod),
        nullable=nullable,
        metadata={b"postgres.type": spelled.encode()},
    )


def decode_text(text: pa.Array, type: PgType, typmod: int = -1) -> TypedColumn:  # noqa: A002
    """Typed values of a string array in Postgres output format; nulls stay null.

    The format is that of DateStyle ISO, IntervalStyle postgres, TimeZone UTC, bytea_output hex
    and extra_float_digits 1 or more. The array must hold valid UTF-8, which is the caller's to
    check. Anything that Postgres would not write is a DecodeError, never a wrong value.
    """
    if text.type != _STRING:
        raise TypeError(f"decode_text takes a string array, not {text.type}")
    codec = _codec(type, typmod)
    try:
        return codec.decode(text)
    except (MalformedTextError, pa.ArrowInvalid) as problem:
        row, reason = _first_malformed(text, codec.decode, str(problem))
    raise _not_a_value(text[row].as_py(), type_name(type, typmod), reason, f"row {row} of ")


def parse_array(text: str, type: PgType, typmod: int = -1) -> ArrayValue:  # noqa: A002
    """One array value of an array type, or of a domain over one, with any shape."""
    array_type = type
    while array_type.kind == "domain" and array_type.inner is not None:
        array_type, typmod = array_type.inner, array_type.typmod
    if array_type.kind != "array" or array_type.inner is None:
        raise TypeError(f"{array_type.name} is not an array type")
    delimiter = _delimiter(array_type.inner)
    if delimiter is None:
        raise DecodeError(
            f"an array of {array_type.inner.name} cannot be split: "
            "only the database that made this type knows what delimits its elements",
            remedy="Use the array's text as it is.",
        )
    try:
        array = split_array(text, delimiter)
        texts = pa.array(array.elements, _STRING)
        values = _codec(array_type.inner, typmod).decode(texts)
    except (MalformedTextError, pa.ArrowInvalid) as problem:
        reason = str(problem)
    else:
        return ArrayValue(array.dimensions, array.lower_bounds, values, texts)
    raise _not_a_value(text, type_name(array_type, typmod), reason, "")


@lru_cache(maxsize=4096)
def _codec(pg_type: PgType, typmod: int) -> _Codec:
    if pg_type.inner is not None:
        if pg_type.kind == "domain":
            return _codec(pg_type.inner, pg_type.typmod)
        delimiter = _delimiter(pg_type.inner)
        if pg_type.kind == "array" and delimiter is not None:
            element = _codec(pg_type.inner, typmod)
            arrow = pa.list_(element.arrow)
            decoder = partial(
                decode_array,
                arrow=arrow,
                decode_elements=element.decode,
                delimiter=delimiter,
            )
            return _Codec(arrow, decoder)
    if pg_type.kind != "base":
        return _TEXT
    if pg_type.oid == _NUMERIC:
        modifier = numeric_modifier(typmod)
        decimal = None if modifier is None else decimal_type(*modifier)
        if decimal is None:
            return _TEXT
        return _Codec(decimal, partial(decode_decimal, arrow=decimal))
    return _BY_OID.get(pg_type.oid, _TEXT)


def _delimiter(element: PgType) -> str | None:
    """What stands between the elements of an array; None where only the catalogue knows."""
    while element.kind == "domain" and element.inner is not None:
        element = element.inner
    if element.oid == _BOX:
        return ";"
    if element.kind == "base" and element.oid >= FIRST_USER_OID:
        return "," if element.name in _COMMA_DELIMITED else None
    return ","


def _first_malformed(
    text: pa.Array, decode: Callable[[pa.Array], TypedColumn], reason: str
) -> tuple[int, str]:
    """The first row that does not decode, and why, by halving a column that fails."""
    low, high = 0, len(text)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            decode(text.slice(low, middle - low))
        except (MalformedTextError, pa.ArrowInvalid):
            high = middle
        else:
            low = middle
    try:
        decode(text.slice(low, 1))
    except (MalformedTextError, pa.ArrowInvalid) as problem:
        reason = str(problem)
    return low, reason


def _not_a_value(text: str, spelled: str, reason: str, place: str) -> DecodeError:
    shown = repr(text) if len(text) <= 60 else f"{text[:40]!r}… ({len(text)} characters)"
    return DecodeError(
        f"{shown}, {place}a column of type {spelled}, is not what Postgres writes: {reason}",
        remedy=(
            "Penstock sets DateStyle, IntervalStyle, TimeZone, bytea_output and "
            "extra_float_digits on its replication connection. If nothing between it and the "
            "server changes them, the bytes were altered: inspect the log and resync the table."
        ),
    )
