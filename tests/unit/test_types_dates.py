"""Dates, times and intervals against slow, simple calendar arithmetic."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.decode.typed import TypedColumn, decode_text
from penstock.model.errors import DecodeError
from penstock.model.pg_types import builtin_type

DATE, TIME, TIMESTAMP, TIMESTAMPTZ, INTERVAL = 1082, 1083, 1114, 1184, 1186
DAY_US = 86_400_000_000
FIRST_DAY = -2440588  # 4714-11-24 BC
LAST_DAY = 2145042905  # 5874897-12-31
LAST_TIMESTAMP_DAY = 106762005 - 1  # 294276-12-31


def decode(texts: list[str | None], oid: int) -> TypedColumn:
    found = builtin_type(oid)
    assert found is not None
    return decode_text(pa.array([None, *texts], pa.string()).slice(1), found)


def integers(column: TypedColumn) -> list[int | None]:
    width = pa.int32() if column.values.type == pa.date32() else pa.int64()
    numbers: list[int | None] = column.values.cast(width).to_pylist()
    return numbers


def lost(column: TypedColumn) -> list[bool]:
    if column.unrepresentable is None:
        return [False] * len(column.values)
    masks: list[bool] = column.unrepresentable.to_pylist()
    return masks


def date_text(day: int) -> tuple[str, str]:
    """Days since 1970 as Postgres writes them, and the era behind, by walking the calendar."""
    cycles, day = divmod(day + 719162, 146097)  # 400 years from 0001-01-01 on
    year = cycles * 400 + 1
    while day >= (length := 366 if is_leap(year) else 365):
        day -= length
        year += 1
    month = 1
    while day >= (length := month_length(year, month)):
        day -= length
        month += 1
    era = " BC" if year < 1 else ""
    return f"{1 - year if year < 1 else year:04d}-{month:02d}-{day + 1:02d}", era


def is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def month_length(year: int, month: int) -> int:
    if month == 2:
        return 29 if is_leap(year) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def clock_text(micros: int) -> str:
    seconds, fraction = divmod(micros, 1_000_000)
    decimals = f".{fraction:06d}".rstrip("0") if fraction else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{decimals}"


def timestamp_text(micros: int, zone: str = "") -> str:
    day, clock = divmod(micros, DAY_US)
    date, era = date_text(day)
    return f"{date} {clock_text(clock)}{zone}{era}"


days = st.integers(FIRST_DAY, LAST_DAY) | st.integers(-719200, 20000)


@settings(deadline=None)
@given(st.lists(st.none() | days, max_size=20))
@example([FIRST_DAY, LAST_DAY, -719162, -719163, 2932896, 2932897, 0, None])
def test_dates_round_trip(values: list[int | None]) -> None:
    texts = [None if day is None else "".join(date_text(day)) for day in values]
    column = decode(texts, DATE)
    assert integers(column) == values
    assert column.unrepresentable is None


def test_dates_as_postgres_18_wrote_them() -> None:
    texts: list[str | None] = [
        "infinity",
        "-infinity",
        "5874897-12-31",
        "4714-11-24 BC",
        "0001-12-31 BC",
        None,
        "2026-01-02",
    ]
    column = decode(texts, DATE)
    assert integers(column) == [None, None, 2145042905, -2440588, -719163, None, 20455]
    assert lost(column) == [True, True, False, False, False, False, False]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0000-01-01",
        "2026-02-29",
        "2026-13-01",
        "2026-00-01",
        "2026-01-00",
        "2026-1-1",
        "20260101",
        "2026-01-01 ",
        " 2026-01-01",
        "01/02/2026",
        "5874898-01-01",
        "4715-01-01 BC",
        "0000-01-01 BC",
        "2026-01-01 AD",
        "Infinity",
        "99999999999999999999-01-01",
        "2026-01-01\n",
        "12026-02-29",
    ],
)
def test_dates_that_do_not_exist_are_refused(text: str) -> None:
    for texts in ([text], [None, "2026-01-01", text], ["infinity", text], ["0044-03-15 BC", text]):
        with pytest.raises(DecodeError):
            decode(list(texts), DATE)


moments = st.integers(FIRST_DAY * DAY_US, 2**63 - 1) | st.integers(-(10**15), 10**16)
offsets = st.integers(-15 * 3600, 15 * 3600) | st.just(0)


@settings(deadline=None)
@given(st.lists(st.none() | moments, max_size=20))
@example([FIRST_DAY * DAY_US, 2**63 - 1, -1, 0, 1, 10**6, None, -62135596800000000])
def test_timestamps_round_trip(values: list[int | None]) -> None:
    texts = [None if value is None else timestamp_text(value) for value in values]
    column = decode(texts, TIMESTAMP)
    assert integers(column) == values
    assert column.unrepresentable is None


@settings(deadline=None)
@given(st.lists(st.none() | st.tuples(moments, offsets), max_size=20))
@example([(0, 0), (2**63 - 1, 0), (0, 19800), (0, -34200), (0, 4772), (-(10**17), -1), None])
def test_timestamps_with_any_offset_round_trip(values: list[tuple[int, int] | None]) -> None:
    texts = [None if value is None else zoned_text(*value) for value in values]
    column = decode(texts, TIMESTAMPTZ)
    assert integers(column) == [None if value is None else value[0] for value in values]
    assert column.values.type == pa.timestamp("us", tz="UTC")


def zoned_text(micros: int, offset: int) -> str:
    local = micros + offset * 1_000_000
    if not FIRST_DAY * DAY_US <= local < (LAST_TIMESTAMP_DAY + 1) * DAY_US:
        local, offset = micros, 0
    seconds = abs(offset)
    zone = f"{'-' if offset < 0 else '+'}{seconds // 3600:02d}"
    if seconds % 3600:
        zone += f":{seconds // 60 % 60:02d}"
    if seconds % 60:
        zone += f":{seconds % 60:02d}"
    return timestamp_text(local, zone)


def test_timestamps_as_postgres_18_wrote_them() -> None:
    texts: list[str | None] = [
        "0044-03-15 12:00:00.5+00 BC",
        "infinity",
        "2026-01-02 03:04:05.6789+00",
        None,
        "2026-01-02 03:04:05+00",
        "294247-01-10 04:00:54.775807+00",
        "294247-01-10 04:00:54.775808+00",
        "-infinity",
    ]
    column = decode(texts, TIMESTAMPTZ)
    assert integers(column) == [
        -63517780799500000,
        None,
        1767323045678900,
        None,
        1767323045000000,
        2**63 - 1,
        None,
        None,
    ]
    assert lost(column) == [False, True, False, False, False, False, True, True]
    naive = decode(["4714-11-24 00:00:00 BC", "294276-12-31 23:59:59.999999"], TIMESTAMP)
    assert integers(naive) == [-210866803200000000, None]
    assert lost(naive) == [False, True]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-01-02",
        "2026-01-02 03:04",
        "2026-01-02T03:04:05",
        "2026-01-02 24:00:00",
        "2026-01-02 03:60:00",
        "2026-01-02 03:04:60",
        "2026-01-02 03:04:05.1234567",
        "2026-01-02 03:04:05.",
        "0000-01-01 00:00:00",
        "2026-02-30 00:00:00",
        "294277-01-01 00:00:00",
        "12026-01-01 25:00:00",
        "0044-03-15 12:00:00 BCE",
        "Fri Jan 02 03:04:05 2026",
        "0044-03-15 12:00:00.1234567 BC",
    ],
)
@pytest.mark.parametrize("oid", [TIMESTAMP, TIMESTAMPTZ])
def test_timestamps_that_do_not_exist_are_refused(oid: int, text: str) -> None:
    zone = "" if oid == TIMESTAMP else "+00"
    bad = text.replace(" BC", f"{zone} BC") if "BC" in text else text + zone
    good = "2026-01-02 03:04:05" + zone
    for texts in ([bad], [good, bad, None], ["infinity", bad], [good + " BC", bad]):
        with pytest.raises(DecodeError):
            decode(list(texts), oid)


@pytest.mark.parametrize(
    "text",
    [
        "2026-01-02 03:04:05",
        "2026-01-02 03:04:05Z",
        "2026-01-02 03:04:05+24",
        "2026-01-02 03:04:05+05:60",
        "2026-01-02 03:04:05 UTC",
        "2026-01-02 03:04:05 +00",
    ],
)
def test_a_timestamptz_needs_its_offset_in_digits(text: str) -> None:
    with pytest.raises(DecodeError):
        decode([text], TIMESTAMPTZ)


def test_a_timestamp_has_no_offset() -> None:
    with pytest.raises(DecodeError):
        decode(["2026-01-02 03:04:05+00"], TIMESTAMP)


@settings(deadline=None)
@given(st.lists(st.none() | st.integers(0, DAY_US), max_size=20))
@example([0, 1, DAY_US - 1, DAY_US, None])
@example([DAY_US])
def test_times_round_trip_and_24_00_is_kept_apart(values: list[int | None]) -> None:
    texts = [None if value is None else clock_text(value) for value in values]
    column = decode(texts, TIME)
    assert integers(column) == [None if value == DAY_US else value for value in values]
    assert lost(column) == [value == DAY_US for value in values]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "03",
        "03:04",
        "3:4:5",
        "24:00:01",
        "25:00:00",
        "03:60:00",
        "03:04:60",
        "03:04:05.",
        "03:04:05.1234567",
        "03:04:05+00",
        "03:04:05 PM",
        " 03:04:05",
    ],
)
def test_times_that_do_not_exist_are_refused(text: str) -> None:
    for texts in ([text], ["03:04:05", None, text], ["24:00:00", text]):
        with pytest.raises(DecodeError):
            decode(list(texts), TIME)


def interval_text(months: int, days: int, micros: int) -> str:
    """Postgres style: a plus stands before what follows something negative."""
    parts: list[str] = []
    before = False
    years = abs(months) // 12 * (1 if months > 0 else -1)
    for number, unit in ((years, "year"), (months - years * 12, "mon"), (days, "day")):
        if number:
            plus = "+" if before and number > 0 else ""
            parts.append(f"{plus}{number} {unit}{'' if number == 1 else 's'}")
            before = number < 0
    if micros or not parts:
        sign = "-" if micros < 0 else "+" if before else ""
        parts.append(sign + clock_text(abs(micros)))
    return " ".join(parts)


int32 = st.integers(-(2**31), 2**31 - 1) | st.integers(-30, 30)
MOST_US = (2**63 - 1) // 1000


@settings(deadline=None)
@given(
    st.lists(
        st.none()
        | st.tuples(
            int32, int32, st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**11), 10**11)
        ),
        max_size=10,
    )
)
@example([(0, 0, MOST_US), (0, 0, -MOST_US), (1, 1, MOST_US + 1), (0, 0, -MOST_US - 1), (0, 0, 0)])
@example([None, (-(2**31), 2**31 - 1, -(2**63)), (2**31 - 1, -(2**31), 2**63 - 1)])
def test_intervals_round_trip(values: list[tuple[int, int, int] | None]) -> None:
    texts = [None if value is None else interval_text(*value) for value in values]
    column = decode(texts, INTERVAL)
    fits = [value is not None and abs(value[2]) <= MOST_US for value in values]
    expected = [
        (value[0], value[1], value[2] * 1000) if value and fit else None
        for value, fit in zip(values, fits, strict=True)
    ]
    assert [None if v is None else tuple(v) for v in column.values.to_pylist()] == expected
    assert lost(column) == [
        value is not None and not fit for value, fit in zip(values, fits, strict=True)
    ]


def test_intervals_as_postgres_18_wrote_them() -> None:
    seen = {
        "1 year 2 mons 3 days 04:05:06.789": (14, 3, 14706789000000),
        "-1 years -2 mons +3 days -04:05:06": (-14, 3, -14706000000000),
        "00:00:00": (0, 0, 0),
        "1 mon": (1, 0, 0),
        "1 day -00:00:01": (0, 1, -1000000000),
        "100:00:00": (0, 0, 360000000000000),
        "-00:00:00.000001": (0, 0, -1000),
        "-178956970 years -8 mons": (-(2**31), 0, 0),
        "178956970 years 7 mons 2147483647 days": (2**31 - 1, 2**31 - 1, 0),
        "-1 mons +2 days": (-1, 2, 0),
        "-1 days +02:00:00": (0, -1, 7200000000000),
        "2562047:47:16.854775": (0, 0, 9223372036854775000),
    }
    assert [tuple(v) for v in decode(list(seen), INTERVAL).values.to_pylist()] == list(
        seen.values()
    )
    beyond: list[str | None] = [
        "infinity",
        "-infinity",
        "2562047788:00:54.775807",
        "-2562047788:00:54.775808",
        None,
    ]
    column = decode(beyond, INTERVAL)
    assert column.values.null_count == 5
    assert lost(column) == [True, True, True, True, False]


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "1",
        "1 day ",
        " 1 day",
        "1 day  2 mons",
        "2 days 1 mon",
        "P1D",
        "@ 1 day",
        "1 day 2",
        "04:60:00",
        "04:05",
        "3000000000 days",
        "178956970 years 8 mons",
        "1537228672809129302 years",
        "1 year 9223372036854775807 mons",
        "2562047789:00:00",
        "9" * 30 + " days",
        "9" * 30 + ":00:00",
        "1.5 days",
        "1 day 00:00:00.1234567",
    ],
)
def test_intervals_that_postgres_does_not_write_are_refused(text: str) -> None:
    for texts in ([text], ["1 day", None, text], ["infinity", text]):
        with pytest.raises(DecodeError):
            decode(list(texts), INTERVAL)
