"""Values as Kafka Connect and Debezium write them in JSON, back to the text of Postgres. Pure."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np

from penstock.source.kafka.events import Malformed

Decode = Callable[[Any], str]
"""A JSON value, not null, as text. Raises ValueError, TypeError or KeyError."""

_DATES = {-2147472692: "infinity", -2147472691: "-infinity"}
_MILLIS = {9223372036825200: "infinity", -9223372036832400: "-infinity"}
_DAY_MICROS = 86_400_000_000


@dataclass(frozen=True)
class ConnectType:
    """``type`` is the column's, as a schema event would call it."""

    type: str
    decode: Decode


def connect_type(schema: Mapping[str, Any]) -> ConnectType:
    """What a field's schema says. Raises Malformed for one that is not read."""
    kind, name = schema.get("type"), schema.get("name")
    if isinstance(name, str) and name in _NAMED:
        return _NAMED[name](schema.get("parameters") or {})
    if kind == "array":
        inner = connect_type(schema["items"])
        return ConnectType(f"{inner.type}[]", partial(_array, inner.decode))
    if isinstance(kind, str) and kind in _PLAIN:
        return _PLAIN[kind]
    raise Malformed(f"a field has the type {str(name or kind)[:60]!r}, which is not read")


def _number(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
        raise TypeError(f"a number was expected, found {str(value)[:40]!r}")
    return str(value)


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"a whole number was expected, found {str(value)[:40]!r}")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a text was expected, found {str(value)[:40]!r}")
    return value


def _boolean(value: Any) -> str:
    if not isinstance(value, bool):
        raise TypeError(f"true or false was expected, found {str(value)[:40]!r}")
    return "t" if value else "f"


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_text(value), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None


def _bytea(value: Any) -> str:
    return "\\x" + _bytes(value).hex()


def _unscaled(value: Any, scale: int) -> str:
    digits = int.from_bytes(_bytes(value), "big", signed=True)
    sign, text = "-" * (digits < 0), str(abs(digits))
    if scale <= 0:
        return sign + text + "0" * -scale if digits else "0"
    text = text.rjust(scale + 1, "0")
    return f"{sign}{text[:-scale]}.{text[-scale:]}"


def _variable(value: Any) -> str:
    return _unscaled(value["value"], _whole(value["scale"]))


def _date(value: Any) -> str:
    days = _whole(value)
    return _DATES.get(days) or _calendar(np.datetime64(days, "D"))


def _calendar(day: np.datetime64) -> str:
    year, rest = int(day.astype("datetime64[Y]").astype(np.int64)) + 1970, str(day)[-6:]
    return f"{year:04d}{rest}" if year > 0 else f"{1 - year:04d}{rest} BC"


def _clock(micros: int) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    return text + (f".{fraction:06d}".rstrip("0") if fraction else "")


def _time(unit: int, value: Any) -> str:
    return _clock(_whole(value) * unit)


def _timestamp(unit: int, value: Any) -> str:
    number = _whole(value)
    named = _MILLIS.get(number if unit == 1000 else number // 1000)
    if named is not None:
        return named
    days, micros = divmod(number * unit, _DAY_MICROS)
    day = _calendar(np.datetime64(days, "D"))
    day, era, _ = day.partition(" BC")
    return f"{day} {_clock(micros)}{era}"


def _zoned(value: Any) -> str:
    text = _text(value)
    if text.endswith("infinity"):
        return text
    if not text.endswith("Z"):
        return text
    body = text[:-1].replace("T", " ")
    head, dot, fraction = body.partition(".")
    fraction = fraction.rstrip("0")
    return f"{head}{dot if fraction else ''}{fraction}+00"


def _duration(value: Any) -> str:
    micros = _whole(value)
    return ("-" if micros < 0 else "") + _clock(abs(micros))


def _point(value: Any) -> str:
    return f"({_number(value['x'])},{_number(value['y'])})"


def _bits(length: int | None, value: Any) -> str:
    if isinstance(value, bool):
        return "1" if value else "0"
    data = _bytes(value)
    bits = "".join(f"{byte:08b}" for byte in reversed(data))
    if length is None or length >= 2**31 - 1:
        return bits
    return bits[-length:].rjust(length, "0")


def _array(inner: Decode, value: Any) -> str:
    if not isinstance(value, list):
        raise TypeError(f"an array was expected, found {str(value)[:40]!r}")
    return "{" + ",".join(_element(inner, each) for each in value) + "}"


def _element(inner: Decode, value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, list):
        return _array(inner, value)
    text = inner(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{text}"'


def _decimal(parameters: Mapping[str, Any]) -> ConnectType:
    scale, precision = int(parameters["scale"]), parameters.get("connect.decimal.precision")
    name = "numeric" if precision is None else f"numeric({int(precision)},{scale})"
    return ConnectType(name, lambda value: _unscaled(value, scale))


def _fixed(name: str, decode: Decode) -> Callable[[Mapping[str, Any]], ConnectType]:
    return lambda _parameters: ConnectType(name, decode)


def _bit_type(parameters: Mapping[str, Any]) -> ConnectType:
    length = int(parameters["length"]) if "length" in parameters else None
    return ConnectType("bit varying", partial(_bits, length))


_PLAIN = {
    "int8": ConnectType("smallint", _number),
    "int16": ConnectType("smallint", _number),
    "int32": ConnectType("integer", _number),
    "int64": ConnectType("bigint", _number),
    "float32": ConnectType("real", _number),
    "float": ConnectType("real", _number),
    "float64": ConnectType("double precision", _number),
    "double": ConnectType("double precision", _number),
    "boolean": ConnectType("boolean", _boolean),
    "string": ConnectType("text", _text),
    "bytes": ConnectType("bytea", _bytea),
}
_NAMED: dict[str, Callable[[Mapping[str, Any]], ConnectType]] = {
    "org.apache.kafka.connect.data.Decimal": _decimal,
    "io.debezium.data.VariableScaleDecimal": _fixed("numeric", _variable),
    "io.debezium.time.Date": _fixed("date", _date),
    "org.apache.kafka.connect.data.Date": _fixed("date", _date),
    "io.debezium.time.Time": _fixed("time(3) without time zone", partial(_time, 1000)),
    "org.apache.kafka.connect.data.Time": _fixed("time without time zone", partial(_time, 1000)),
    "io.debezium.time.MicroTime": _fixed("time without time zone", partial(_time, 1)),
    "io.debezium.time.Timestamp": _fixed(
        "timestamp(3) without time zone", partial(_timestamp, 1000)
    ),
    "org.apache.kafka.connect.data.Timestamp": _fixed(
        "timestamp without time zone", partial(_timestamp, 1000)
    ),
    "io.debezium.time.MicroTimestamp": _fixed(
        "timestamp without time zone", partial(_timestamp, 1)
    ),
    "io.debezium.time.ZonedTimestamp": _fixed("timestamp with time zone", _zoned),
    "io.debezium.time.ZonedTime": _fixed("time with time zone", _zoned),
    "io.debezium.time.MicroDuration": _fixed("interval", _duration),
    "io.debezium.time.Interval": _fixed("interval", _text),
    "io.debezium.data.Json": _fixed("json", _text),
    "io.debezium.data.Uuid": _fixed("uuid", _text),
    "io.debezium.data.Xml": _fixed("xml", _text),
    "io.debezium.data.Enum": _fixed("text", _text),
    "io.debezium.data.Bits": _bit_type,
    "io.debezium.data.geometry.Point": _fixed("point", _point),
}


def parsed(text: str) -> Any:
    """JSON with numbers as they are written, where they are not whole. Raises ValueError."""
    try:
        return json.loads(text, parse_float=Decimal)
    except RecursionError:
        raise ValueError("the JSON is too deep") from None
