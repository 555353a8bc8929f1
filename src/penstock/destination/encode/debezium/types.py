"""Which form each Postgres type has in Debezium's messages. docs/debezium_format.md lists them."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.typed import decode_text
from penstock.destination.encode.debezium.arrays import array_form
from penstock.destination.encode.debezium.base64 import base64_of_binary
from penstock.destination.encode.debezium.form import (
    Content,
    Form,
    as_it_is,
    base_type,
    one_by_one,
    strings,
)
from penstock.destination.encode.debezium.numbers import float_form, money_form, numeric_form
from penstock.destination.encode.debezium.options import DebeziumOptions
from penstock.destination.encode.debezium.times import (
    DATE,
    INTERVAL,
    TIME,
    TIMESTAMP,
    TIMESTAMPTZ,
    TIMETZ,
    time_form,
)
from penstock.destination.encode.json_values import TEXT
from penstock.model.pg_types import FIRST_USER_OID, builtin_type
from penstock.model.table_schema import PgType

_BOOL, _BYTEA, _POINT, _FLOAT4, _FLOAT8, _MONEY, _NUMERIC = 16, 17, 600, 700, 701, 790, 1700
_INTEGERS = {20: "int64", 21: "int16", 23: "int32", 26: "int64"}
_TIMES = frozenset({DATE, TIME, TIMESTAMP, TIMESTAMPTZ, INTERVAL, TIMETZ})
_BITS = frozenset({1560, 1562})
_UUID_OID = 2950
_NAMED = {
    114: "io.debezium.data.Json",
    142: "io.debezium.data.Xml",
    _UUID_OID: "io.debezium.data.Uuid",
    3614: "io.debezium.data.Tsvector",
    3802: "io.debezium.data.Json",
}
_LONGEST_BITS = 2**31 - 1
_NO_UUID = '"00000000-0000-0000-0000-000000000000"'
_TRUE, _FALSE = pa.scalar("true", TEXT), pa.scalar("false", TEXT)


def form_of(
    pg_type: PgType, typmod: int, options: DebeziumOptions, labels: Sequence[str] = ()
) -> Form:
    """How values of this type are written. ``labels`` are an enum's, for its schema."""
    pg_type, typmod = base_type(pg_type, typmod)
    unavailable = json.dumps(options.unavailable)
    if pg_type.kind == "array" and pg_type.inner is not None:
        element, modifier = base_type(pg_type.inner, typmod)
        if _splits(element):
            return array_form(
                element, form_of(element, modifier, options, labels), options.unavailable
            )
    if pg_type.kind == "enum":
        parameters = {"allowed": ",".join(labels)} if labels else {}
        schema = _named("io.debezium.data.Enum", parameters)
        return Form(schema, strings, '""', unavailable, '""')
    oid = pg_type.oid if pg_type.kind == "base" else 0
    if oid in _INTEGERS:
        return Form({"type": _INTEGERS[oid]}, as_it_is, "0", computed="0")
    if oid in _TIMES:
        return time_form(pg_type, typmod, options)
    if oid == _NUMERIC:
        return numeric_form(typmod, options)
    if oid == _MONEY:
        return money_form(options)
    if oid in (_FLOAT4, _FLOAT8):
        return float_form("float" if oid == _FLOAT4 else "double")
    if oid == _BOOL:
        return Form({"type": "boolean"}, _booleans, "false", computed="false")
    if oid == _BYTEA:
        return _binary_form(options)
    if oid in _BITS:
        return _bits_form(typmod)
    if oid == _POINT:
        return _point_form()
    if oid in _NAMED:
        computed = _NO_UUID if oid == _UUID_OID else '""'
        return Form(_named(_NAMED[oid], {}), strings, '""', unavailable, computed)
    return Form({"type": "string"}, strings, '""', unavailable, '""')


def _splits(element: PgType) -> bool:
    """Whether an array of it can be taken apart; else it is written as its text."""
    if element.kind in ("composite", "range", "multirange"):
        return builtin_type(element.oid) is not None
    box = 603  # has a delimiter of its own
    return element.kind == "enum" or (element.oid < FIRST_USER_OID and element.oid != box)


def _named(name: str, parameters: dict[str, str]) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string", "name": name, "version": 1}
    return {**schema, "parameters": parameters} if parameters else schema


def _booleans(text: pa.Array) -> Content:
    return Content(pc.if_else(pc.equal(text.cast(TEXT), pa.scalar("t", TEXT)), _TRUE, _FALSE))


def _binary_form(options: DebeziumOptions) -> Form:
    plain = json.dumps(options.unavailable)
    if options.binary == "bytes":
        placeholder = base64.b64encode(options.unavailable.encode()).decode()
        return Form({"type": "bytes"}, _base64, '""', f'"{placeholder}"')
    if options.binary == "hex":
        return Form({"type": "string"}, _hex, '""', plain)
    write = partial(_base64, url_safe=options.binary == "base64-url-safe")
    return Form({"type": "string"}, write, '""', plain)


def _base64(text: pa.Array, url_safe: bool = False) -> Content:
    bytea = builtin_type(_BYTEA)
    assert bytea is not None  # noqa: S101 (it is built in)
    values = decode_text(text.cast(pa.string()), bytea).values
    return Content(base64_of_binary(values, url_safe=url_safe), quoted=True)


def _hex(text: pa.Array) -> Content:
    # Postgres writes \x before the digits.
    return Content(pc.utf8_slice_codeunits(text.cast(TEXT), 2), quoted=True)


def _bits_form(typmod: int) -> Form:
    length = typmod if typmod > 0 else _LONGEST_BITS
    if length == 1:
        return Form({"type": "boolean"}, partial(one_by_one, token=_bit), "false", computed="false")
    schema = {
        "type": "bytes",
        "name": "io.debezium.data.Bits",
        "version": 1,
        "parameters": {"length": str(length)},
    }
    return Form(schema, partial(one_by_one, token=_bits), '""', computed='""')


def _bit(text: str) -> str:
    return "true" if text == "1" else "false"


def _bits(text: str) -> str:
    """The first bit of a byte is the last of the text; zeros before the first one are dropped."""
    number = int(text or "0", 2)
    data = number.to_bytes((number.bit_length() + 7) // 8, "little")
    return f'"{base64.b64encode(data).decode()}"'


def _point_form() -> Form:
    schema = {
        "type": "struct",
        "fields": [
            {"type": "double", "optional": False, "field": "x"},
            {"type": "double", "optional": False, "field": "y"},
            {"type": "bytes", "optional": True, "field": "wkb"},
            {"type": "int32", "optional": True, "field": "srid"},
        ],
        "name": "io.debezium.data.geometry.Point",
        "version": 1,
        "doc": "Geometry (POINT)",
    }
    return Form(schema, partial(one_by_one, token=_point), _point("(0,0)"))


def _point(text: str) -> str:
    """Both coordinates, and the same as well-known binary."""
    numbers = text[1:-1].split(",")
    x, y = (
        f'"{number}"' if number in ("NaN", "Infinity", "-Infinity") else number
        for number in numbers
    )
    wkb = struct.pack("<BIdd", 1, 1, *map(float, numbers))
    return f'{{"x":{x},"y":{y},"wkb":"{base64.b64encode(wkb).decode()}","srid":null}}'
