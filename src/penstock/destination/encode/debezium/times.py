"""Dates, times, timestamps and intervals as Debezium counts them."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.row_values import Ints, Mask
from penstock.decode.typed import decode_text
from penstock.decode.types.text_column import MalformedTextError
from penstock.destination.encode.debezium.form import Content, Form, one_by_one
from penstock.destination.encode.debezium.options import DebeziumOptions
from penstock.destination.encode.json_values import TEXT
from penstock.model.pg_types import builtin_type
from penstock.model.table_schema import PgType

DATE, TIME, TIMESTAMP, TIMESTAMPTZ, INTERVAL, TIMETZ = 1082, 1083, 1114, 1184, 1186, 1266

# What Debezium writes for the infinities: it has no word for them.
_DATES = {"infinity": -2147472692, "-infinity": -2147472691}
_MILLIS = {"infinity": 9223372036825200, "-infinity": -9223372036832400}
_MICROS = {name: 1000 * millis for name, millis in _MILLIS.items()}
_DAY_MICROS = 86_400_000_000
_MONTH_MICROS = 2_629_800_000_000  # a twelfth of 365.25 days
# With no more of them than this the sum of all parts fits into 64 bits.
_FEW_MONTHS, _FEW_DAYS = 1_500_000, 50_000_000

_MOMENT = re.compile(r"(\d{4,})(-\d\d-\d\d) (\d\d:\d\d:\d\d)(?:\.(\d+))?([+-][\d:]+)?( BC)?")
_ZONED_TIME = re.compile(r"(\d\d):(\d\d):(\d\d)(?:\.(\d+))?([+-])(\d\d)(?::(\d\d))?(?::(\d\d))?")
_SPAN = re.compile(
    r"(?:([+-]?\d+) years? ?)?(?:([+-]?\d+) mons? ?)?(?:([+-]?\d+) days? ?)?"
    r"(?:([+-]?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?)?"
)


def time_form(pg_type: PgType, typmod: int, options: DebeziumOptions) -> Form:
    """The form of one of the types above."""
    connect = options.times == "connect"
    digits = 6 if typmod < 0 else typmod
    if pg_type.oid == DATE:
        name = "org.apache.kafka.connect.data.Date" if connect else "io.debezium.time.Date"
        return Form(_schema("int32", name), _dates, "0", computed="0")
    if pg_type.oid == TIME:
        if connect:
            return _clock("int32", "org.apache.kafka.connect.data.Time", 1000)
        if digits <= 3 and options.times == "adaptive":
            return _clock("int32", "io.debezium.time.Time", 1000)
        return _clock("int64", "io.debezium.time.MicroTime", 1)
    if pg_type.oid == TIMESTAMP:
        if connect:
            return _moment("org.apache.kafka.connect.data.Timestamp", 1000)
        if digits <= 3:
            return _moment("io.debezium.time.Timestamp", 1000)
        return _moment("io.debezium.time.MicroTimestamp", 1)
    if pg_type.oid == TIMESTAMPTZ:
        epoch = "1970-01-01T00:00:00" + (f".{'0' * digits}" if digits else "") + "Z"
        return Form(
            _schema("string", "io.debezium.time.ZonedTimestamp"),
            partial(_zoned, digits=digits),
            '"1970-01-01T00:00:00Z"',
            computed=json.dumps(epoch),
        )
    if pg_type.oid == TIMETZ:
        return Form(
            _schema("string", "io.debezium.time.ZonedTime"),
            partial(one_by_one, token=_zoned_time),
            '"00:00:00Z"',
        )
    if options.intervals == "string":
        nothing = '"P0Y0M0DT0H0M0S"'
        schema = _schema("string", "io.debezium.time.Interval")
        return Form(schema, partial(one_by_one, token=_span), nothing, computed=nothing)
    return Form(_schema("int64", "io.debezium.time.MicroDuration"), _durations, "0", computed="0")


def _schema(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "name": name, "version": 1}


def _clock(kind: str, name: str, divisor: int) -> Form:
    return Form(_schema(kind, name), partial(_times, divisor=divisor), "0", computed="0")


def _moment(name: str, divisor: int) -> Form:
    write = partial(_timestamps, divisor=divisor)
    return Form(_schema("int64", name), write, "0", computed="0")


def _typed(text: pa.Array, oid: int) -> tuple[pa.Array, list[int]]:
    """Values of the text's Arrow type, and the rows that have none although they are not null."""
    kind = builtin_type(oid)
    assert kind is not None  # noqa: S101 (these are all built in)
    column = decode_text(text.cast(pa.string()), kind)
    odd = column.unrepresentable
    return column.values, [] if odd is None else np.flatnonzero(odd).tolist()


def _numbers(values: pa.Array, numbers: npt.NDArray[Any], odd: dict[int, int | None]) -> Content:
    """Numbers as JSON, null where ``values`` is; ``odd`` rows have their own."""
    valid = values.is_valid().to_numpy(zero_copy_only=False) if values.null_count else None
    tokens = pa.array(numbers, mask=None if valid is None else ~valid).cast(TEXT)
    if not odd:
        return Content(tokens)
    places = np.zeros(len(values), bool)
    places[list(odd)] = True
    own = pa.array([None if odd[row] is None else str(odd[row]) for row in sorted(odd)], TEXT)
    return Content(pc.replace_with_mask(tokens, pa.array(places), own))


def _raw(values: pa.Array, width: pa.DataType) -> Ints:
    numbers: Ints = values.view(width).fill_null(0).to_numpy().astype(np.int64)
    return numbers


def _dates(text: pa.Array) -> Content:
    values, odd = _typed(text, DATE)
    return _numbers(
        values, _raw(values, pa.int32()), {row: _DATES[text[row].as_py()] for row in odd}
    )


def _times(text: pa.Array, divisor: int) -> Content:
    values, odd = _typed(text, TIME)
    numbers = _raw(values, pa.int64()) // divisor
    # Only midnight after the day is odd.
    return _numbers(values, numbers, dict.fromkeys(odd, _DAY_MICROS // divisor))


def _timestamps(text: pa.Array, divisor: int) -> Content:
    values, odd = _typed(text, TIMESTAMP)
    numbers = _raw(values, pa.int64()) // divisor
    named = _MICROS if divisor == 1 else _MILLIS
    own = {row: named.get(text[row].as_py(), _late(text[row].as_py(), divisor)) for row in odd}
    return _numbers(values, numbers, own)


def _late(text: str, divisor: int) -> int | None:
    """A timestamp beyond 2**63 microseconds: None where even its milliseconds do not do."""
    found = _MOMENT.fullmatch(text)
    if found is None or divisor == 1:
        return None
    year, day, clock, fraction = found[1], found[2], found[3], (found[4] or "").ljust(6, "0")
    # Whole cycles of the calendar bring the year into NumPy's range.
    cycles = 730
    moment = np.datetime64(f"{int(year) - cycles * 400}{day}T{clock}", "s").astype(np.int64)
    seconds = int(moment) + cycles * 146097 * 86400
    return (seconds * 1_000_000 + int(fraction)) // divisor


def _zoned(text: pa.Array, digits: int) -> Content:
    """ISO 8601 in UTC with all the digits of the column's precision."""
    text = text.cast(TEXT)
    rows = text.drop_null() if text.null_count else text
    written, plain = _plain_moments(rows, digits)
    if not plain.all():
        own = pa.array(
            [_zoned_text(row, digits) for row in rows.filter(pa.array(~plain)).to_pylist()], TEXT
        )
        written = pc.replace_with_mask(written, pa.array(~plain), own)
    if text.null_count:
        places = np.zeros(len(text), np.int64)
        valid = text.is_valid().to_numpy(zero_copy_only=False)
        places[valid] = np.arange(len(rows))
        written = written.take(pa.array(places, mask=~valid))
    return Content(written, quoted=True)


def _plain_moments(text: pa.Array, digits: int) -> tuple[pa.Array, Mask]:
    """Moments of the years 1 to 9999 at +00, and which of the rows are such. Others are wrong."""
    count = len(text)
    offsets = np.frombuffer(text.buffers()[1], np.int64, count + 1, text.offset * 8)
    starts, ends = offsets[:-1], offsets[1:]
    buffer = text.buffers()[2]
    width = 19 + (digits + 1 if digits else 0) + 1
    if not count or buffer is None:
        return pa.nulls(count, TEXT), np.zeros(count, bool)
    data = np.frombuffer(buffer, np.uint8)
    lengths = ends - starts
    plain: Mask = (lengths >= 22) & (lengths <= 23 + digits) & (lengths != 23)
    at = np.where(plain, starts, 0)
    last = np.where(plain, ends, 22)
    if len(data) < 22:
        return pa.nulls(count, TEXT), np.zeros(count, bool)
    plain &= (data[at + 4] == ord("-")) & (data[at + 10] == ord(" "))
    plain &= (data[last - 3] == ord("+")) & (data[last - 2] == 0x30) & (data[last - 1] == 0x30)
    out = np.full((count, width), ord("0"), np.uint8)
    for place in range(19):
        out[:, place] = data[at + place]
    out[:, 10] = ord("T")
    if digits:
        present = last - at - 23
        for place in range(digits):
            has = place < present
            if not has.any():
                break
            out[has, 20 + place] = data[at[has] + 20 + place]
        out[:, 19] = ord(".")
    out[:, -1] = ord("Z")
    bounds = np.arange(0, width * count + 1, width)
    buffers = [None, pa.py_buffer(bounds), pa.py_buffer(out)]
    return pa.Array.from_buffers(TEXT, count, buffers), plain


def _zoned_text(text: str, digits: int) -> str:
    found = _MOMENT.fullmatch(text)
    if found is None:
        if text in _MILLIS:
            return text  # Debezium has no other word for the infinities, either
        raise MalformedTextError("expected YYYY-MM-DD HH:MM:SS with an offset")
    if found[5] != "+00":
        # Only a default is in the zone of the session that read the catalogue.
        values, odd = _typed(pa.array([text]), TIMESTAMPTZ)
        moment = "" if odd else str(np.datetime64(values.view(pa.int64())[0].as_py(), "us"))
        if len(moment) != 26:  # a year of four digits
            raise MalformedTextError("a moment outside of the years 1 to 9999 in another zone")
        return f"{moment[: 19 + (digits + 1 if digits else 0)]}Z"
    year = 1 - int(found[1]) if found[6] else int(found[1])
    shown = f"{year:04}" if 0 <= year <= 9999 else f"{year:+05}"
    fraction = f".{(found[4] or '').ljust(digits, '0')}" if digits else ""
    return f"{shown}{found[2]}T{found[3]}{fraction}Z"


def _zoned_time(text: str) -> str | None:
    found = _ZONED_TIME.fullmatch(text)
    if found is None:
        return None
    hours, minutes, seconds = int(found[1]), int(found[2]), int(found[3])
    offset = int(found[6]) * 3600 + int(found[7] or 0) * 60 + int(found[8] or 0)
    total = hours * 3600 + minutes * 60 + seconds
    total = (total - offset if found[5] == "+" else total + offset) % 86400
    fraction = f".{found[4]}" if found[4] else ""
    return f'"{total // 3600:02}:{total // 60 % 60:02}:{total % 60:02}{fraction}Z"'


def _durations(text: pa.Array) -> Content:
    """Microseconds, a month as a twelfth of 365.25 days; null beyond 64 bits."""
    values, odd = _typed(text, INTERVAL)
    layout = np.dtype([("months", np.int32), ("days", np.int32), ("nanos", np.int64)])
    parts = np.frombuffer(values.buffers()[1], layout, len(values), values.offset * 16)
    months, days = parts["months"].astype(np.int64), parts["days"].astype(np.int64)
    micros = parts["nanos"] // 1000
    rare = (np.abs(months) > _FEW_MONTHS) | (np.abs(days) > _FEW_DAYS)
    own: dict[int, int | None] = dict.fromkeys(odd)
    for row in np.flatnonzero(rare).tolist():
        total = int(months[row]) * _MONTH_MICROS + int(days[row]) * _DAY_MICROS + int(micros[row])
        own[row] = total if -(2**63) <= total < 2**63 else None
    numbers = np.where(rare, 0, months) * _MONTH_MICROS + np.where(rare, 0, days) * _DAY_MICROS
    return _numbers(values, numbers + micros, own)


def _span(text: str) -> str | None:
    """ISO 8601 with every field, each with its own sign; None for the infinities."""
    found = _SPAN.fullmatch(text)
    if found is None:
        return None
    years, months, days = (int(part or 0) for part in found.groups()[:3])
    sign = -1 if found[4] == "-" else 1
    hours, minutes = sign * int(found[5] or 0), sign * int(found[6] or 0)
    seconds, fraction = int(found[7] or 0), (found[8] or "").rstrip("0")
    shown = f"{seconds}.{fraction}" if fraction else f"{seconds}"
    if sign < 0 and (seconds or fraction):
        shown = "-" + shown
    return f'"P{years}Y{months}M{days}DT{hours}H{minutes}M{shown}S"'
