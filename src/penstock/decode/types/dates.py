"""date, timestamp, timestamptz and time, in ISO style.

Arrow reads the plain shape. What it cannot read (years beyond 9999 or BC, odd offsets) goes
through a regular expression and calendar arithmetic, still a column at a time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.types.constant_text import text, texts
from penstock.decode.types.text_column import MalformedTextError, Mask, TextColumn, TypedColumn

Numbers = npt.NDArray[np.int64]

TIMESTAMP = pa.timestamp("us")
TIMESTAMPTZ = pa.timestamp("us", tz="UTC")
TIME = pa.time64("us")

# Made once: turning a Python value into a scalar costs more than most calls here.
_A_DAY, _BLANK, _BC, _MINUS = map(text, ("1970-01-01", " ", " BC", "-"))
_DASH, _NINE, _COLON, _SPACE = b"-9: "
_INFINITIES = texts("infinity", "-infinity")
_MIDNIGHT_AFTER = texts("24:00:00")
_DATE = r"^(?P<year>\d\d\d\d+)-(?P<month>\d\d)-(?P<day>\d\d)"
_CLOCK = r" (?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:\.(?P<fraction>\d+))?"
_ZONE = r"(?P<sign>[+-])(?P<zh>\d\d)(?::(?P<zm>\d\d))?(?::(?P<zs>\d\d))?"
_ERA = r"(?P<bc> BC)?$"
_LAST_DATE_YEAR, _LAST_TIMESTAMP_YEAR, _FIRST_YEAR_BC = 5874897, 294276, 4714
_DAY_OF_YEAR_ONE = -719162
_DAY_US = 86_400_000_000
_MONTH_DAYS = np.array([0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])
# The last day, and the last microsecond in it, that an int64 counts from 1970.
_LAST_DAY, _LAST_US = divmod(2**63 - 1, _DAY_US)


def decode_date(column: TextColumn) -> TypedColumn:
    """±infinity is unrepresentable."""
    if column.all_bytes_up_to(_NINE):
        try:
            values = column.array.cast(pa.date32())
        except pa.ArrowInvalid:  # most likely a year of five digits
            pass
        else:
            if _lowest(values, np.int32) >= _DAY_OF_YEAR_ONE:
                return TypedColumn(values)
    infinite = column.is_one_of(_INFINITIES)
    plain = np.diff(column.offsets) == 10
    days, rest = _plain_values(column, plain, infinite, pa.date32(), _DAY_OF_YEAR_ONE)
    if rest.any():
        parts = _Parts(column.array.filter(pa.array(rest)), _DATE + _ERA)
        days[rest] = parts.days(_LAST_DATE_YEAR)
    return column.typed(pa.date32(), days.astype(np.int32), infinite)


def decode_timestamp(column: TextColumn, arrow: pa.DataType) -> TypedColumn:
    """±infinity and what lies past 294247-01-10 04:00:54.775807 UTC is unrepresentable."""
    zoned = arrow.tz is not None
    first = _DAY_OF_YEAR_ONE * _DAY_US
    # Arrow also takes T, Z and times without seconds; Postgres writes neither.
    shortest = 22 if zoned else 19
    if column.all_bytes_up_to(_COLON) and (column.ends - column.starts).min() >= shortest:
        try:
            values = column.array.cast(arrow)
        except pa.ArrowInvalid:  # most likely a year of five digits or an offset with seconds
            pass
        else:
            if _lowest(values, np.int64) >= first:
                return TypedColumn(values)
    infinite = column.is_one_of(_INFINITIES)
    plain = _looks_plain(column, shortest)
    micros, rest = _plain_values(column, plain, infinite, arrow, first)
    holes = infinite
    if rest.any():
        pattern = _DATE + _CLOCK + (_ZONE if zoned else "") + _ERA
        parts = _Parts(column.array.filter(pa.array(rest)), pattern)
        day, clock = parts.days(_LAST_TIMESTAMP_YEAR), parts.clock()
        if zoned:
            carry, clock = np.divmod(clock - parts.offset(), _DAY_US)
            day = day + carry
        beyond = (day > _LAST_DAY) | ((day == _LAST_DAY) & (clock > _LAST_US))
        micros[rest] = np.where(beyond, 0, day) * _DAY_US + np.where(beyond, 0, clock)
        holes = infinite.copy()
        holes[rest] = beyond
    return column.typed(arrow, micros, holes)


def decode_time(column: TextColumn) -> TypedColumn:
    """24:00:00, which Postgres keeps apart from 00:00:00, is unrepresentable."""
    if not column.all_bytes_up_to(_COLON) or (column.ends - column.starts).min() < 8:
        raise MalformedTextError("expected HH:MM:SS with up to six decimals")
    try:
        return TypedColumn(_times(column.array))
    except pa.ArrowInvalid:
        late = column.is_one_of(_MIDNIGHT_AFTER)
        if not late.any():
            raise
        return TypedColumn(_times(column.where(~late)), pa.array(late))


def _times(array: pa.Array) -> pa.Array:
    # Arrow has no cast from text to time, but one to timestamp.
    moments = pc.binary_join_element_wise(_A_DAY, array, _BLANK).cast(TIMESTAMP)
    return moments.view(pa.int64()).view(TIME)


def _lowest(values: pa.Array, dtype: type[np.int32] | type[np.int64]) -> int:
    """The least value, for finding year 0, which Arrow reads and Postgres does not have.

    Null rows count with whatever their slots hold; too low a result only costs the slow path.
    """
    width = np.dtype(dtype).itemsize
    numbers = np.frombuffer(values.buffers()[1], dtype, len(values), values.offset * width)
    return int(numbers.min())


def _looks_plain(column: TextColumn, shortest: int) -> Mask:
    """Rows with a year of four digits, then a space, and no era or Z: Arrow may read them."""
    if not column.data.size:
        return np.zeros(column.size, np.bool_)
    starts, ends = column.offsets[:-1], column.offsets[1:]
    plain: Mask = ends - starts >= shortest
    last = column.data.size - 1
    plain &= column.data[np.minimum(starts + 4, last)] == _DASH
    plain &= column.data[np.minimum(starts + 10, last)] == _SPACE
    plain &= column.data[np.maximum(ends - 1, 0)] <= _NINE
    return plain


def _plain_values(
    column: TextColumn, plain: Mask, infinite: Mask, arrow: pa.DataType, first: int
) -> tuple[Numbers, Mask]:
    """Values of the plain rows, as Arrow reads them, and which rows it leaves."""
    rest = ~(plain | infinite)
    if column.valid is not None:
        rest &= column.valid
    try:
        read = column.where(plain).cast(arrow)
    except pa.ArrowInvalid:
        return np.zeros(column.size, np.int64), rest | plain
    integers = read.cast(pa.int32()) if arrow == pa.date32() else read.cast(pa.int64())
    values = pc.fill_null(integers, 0).to_numpy().astype(np.int64)
    if values.min() < first:
        raise MalformedTextError("there is no year 0")
    return values, rest


class _Parts:
    """The fields of texts that match a pattern, as columns of numbers."""

    def __init__(self, texts: pa.Array, pattern: str) -> None:
        self._fields = pc.extract_regex(texts, pattern)
        if self._fields.null_count:
            raise MalformedTextError(
                "expected ISO style: YYYY-MM-DD, HH:MM:SS, an offset where it is due"
            )

    def days(self, last_year: int) -> Numbers:
        """Days since 1970-01-01 in the proleptic Gregorian calendar."""
        year, month, day = self._number("year"), self._number("month"), self._number("day")
        bc = self._is("bc", _BC)
        if (year < 1).any() or (year > np.where(bc, _FIRST_YEAR_BC, last_year)).any():
            raise MalformedTextError("the year is out of Postgres's range")
        year = np.where(bc, 1 - year, year)
        if (month < 1).any() or (month > 12).any():
            raise MalformedTextError("no such month")
        leap = (year % 4 == 0) & ((year % 100 != 0) | (year % 400 == 0))
        last = _MONTH_DAYS[month] - ((month == 2) & ~leap)
        if (day < 1).any() or (day > last).any():
            raise MalformedTextError("no such day")
        # Years that begin in March put the leap day at their end.
        year = year - (month <= 2)
        day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
        days: Numbers = 365 * year + year // 4 - year // 100 + year // 400 + day_of_year - 719468
        return days

    def clock(self) -> Numbers:
        """Microseconds since midnight."""
        seconds = self._seconds("hour", "minute", "second")
        return seconds * 1_000_000 + decimals_to_micros(self._fields.field("fraction"))

    def offset(self) -> Numbers:
        """Microseconds that the zone is ahead of UTC."""
        seconds = self._seconds("zh", "zm", "zs") * 1_000_000
        return np.where(self._is("sign", _MINUS), -seconds, seconds)

    def _seconds(self, hour: str, minute: str, second: str) -> Numbers:
        hours, minutes, seconds = (self._number(name) for name in (hour, minute, second))
        if (hours > 23).any() or (minutes > 59).any() or (seconds > 59).any():
            raise MalformedTextError("no such time of day")
        return hours * 3600 + minutes * 60 + seconds

    def _number(self, name: str) -> Numbers:
        # A group that did not take part is empty: padded, it reads as zero.
        padded = pc.ascii_lpad(self._fields.field(name), 1, "0")
        numbers: Numbers = padded.cast(pa.int64()).to_numpy()
        return numbers

    def _is(self, name: str, text: pa.Scalar) -> Mask:
        same: Mask = pc.equal(self._fields.field(name), text).to_numpy(zero_copy_only=False)
        return same


def decimals_to_micros(decimals: pa.Array) -> Numbers:
    """The digits behind a second's decimal point, at most six, as microseconds."""
    if pc.max(pc.binary_length(decimals)).as_py() > 6:
        raise MalformedTextError("more than six decimals of a second")
    micros: Numbers = pc.ascii_rpad(decimals, 6, "0").cast(pa.int64()).to_numpy()
    return micros
