"""interval in postgres style: ``1 year 2 mons -3 days +04:05:06.789``."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.types.constant_text import text, texts
from penstock.decode.types.dates import decimals_to_micros
from penstock.decode.types.text_column import MalformedTextError, TextColumn, TypedColumn

INTERVAL = pa.month_day_nano_interval()

_NOTHING, _BLANK, _MINUS = text(""), text(" "), text("-")
_INFINITIES = texts("infinity", "-infinity")
# Read with a space before the text, so that every part has one.
_PATTERN = (
    r"^(?: (?P<years_sign>[+-]?)(?P<years>\d+) years?)?"
    r"(?: (?P<months_sign>[+-]?)(?P<months>\d+) mons?)?"
    r"(?: (?P<days_sign>[+-]?)(?P<days>\d+) days?)?"
    r"(?: (?P<time_sign>[+-]?)(?P<hours>\d+):(?P<minutes>[0-5]\d):(?P<seconds>[0-5]\d)"
    r"(?:\.(?P<fraction>\d+))?)?$"
)
_LAYOUT = np.dtype([("months", np.int32), ("days", np.int32), ("nanos", np.int64)])
_INT32 = np.iinfo(np.int32)
_MOST_HOURS = 2562047788  # in 2**63 microseconds
_MOST_MICROS = (2**63 - 1) // 1000  # that fit as nanoseconds

Numbers = npt.NDArray[np.int64]


def decode_interval(column: TextColumn) -> TypedColumn:
    """±infinity (17 and later) and times past 2562047:47:16.854775 are unrepresentable."""
    infinite = column.is_one_of(_INFINITIES)
    finite = ~infinite if column.valid is None else column.valid & ~infinite
    values = np.zeros(column.size, _LAYOUT)
    holes = infinite.copy()
    if finite.any():
        texts = column.array.filter(pa.array(finite))
        fields = pc.extract_regex(pc.binary_join_element_wise(_NOTHING, texts, _BLANK), _PATTERN)
        if fields.null_count:
            raise MalformedTextError("expected postgres style: 1 year 2 mons 3 days 04:05:06.789")
        years, months, days = (_signed(fields, name) for name in ("years", "months", "days"))
        months = _within_int32(years) * 12 + _within_int32(months)
        _within_int32(months)
        _within_int32(days)
        micros, beyond = _micros(fields)
        values["months"][finite] = np.where(beyond, 0, months)
        values["days"][finite] = np.where(beyond, 0, days)
        values["nanos"][finite] = micros * 1000
        holes[finite] = beyond
    return column.typed(INTERVAL, values, holes)


def _micros(fields: pa.StructArray) -> tuple[Numbers, npt.NDArray[np.bool_]]:
    """The time part, and where it does not fit as nanoseconds (the value is then 0)."""
    hours, minutes, seconds = (_number(fields, name) for name in ("hours", "minutes", "seconds"))
    if (hours > _MOST_HOURS).any():
        raise MalformedTextError("more microseconds than an interval holds")
    total = hours * 3600 + minutes * 60 + seconds
    beyond = total > _MOST_MICROS // 1_000_000
    fraction = decimals_to_micros(fields.field("fraction"))
    micros = np.where(beyond, 0, total) * 1_000_000 + fraction
    beyond |= micros > _MOST_MICROS
    micros = np.where(beyond, 0, micros)
    return np.where(_negative(fields, "time_sign"), -micros, micros), beyond


def _number(fields: pa.StructArray, name: str) -> Numbers:
    # A part that is not there is empty: padded, it reads as zero.
    padded = pc.ascii_lpad(fields.field(name), 1, "0")
    numbers: Numbers = padded.cast(pa.int64()).to_numpy()
    return numbers


def _negative(fields: pa.StructArray, name: str) -> npt.NDArray[np.bool_]:
    sign = pc.equal(fields.field(name), _MINUS)
    negative: npt.NDArray[np.bool_] = sign.to_numpy(zero_copy_only=False)
    return negative


def _signed(fields: pa.StructArray, name: str) -> Numbers:
    numbers = _number(fields, name)
    return np.where(_negative(fields, f"{name}_sign"), -numbers, numbers)


def _within_int32(numbers: Numbers) -> Numbers:
    if (numbers < _INT32.min).any() or (numbers > _INT32.max).any():
        raise MalformedTextError("more months or days than an interval holds")
    return numbers
