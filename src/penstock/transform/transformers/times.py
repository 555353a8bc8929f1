"""Dates and timestamps: drawn anew, shifted with their family, truncated, noise."""

from __future__ import annotations

from datetime import date, datetime
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from penstock.transform.transformers.contract import (
    DrawOptions,
    Inputs,
    NoOptions,
    Transformer,
    UnfitError,
)
from penstock.transform.transformers.drawing import Ints, between
from penstock.transform.transformers.parsing import (
    DAY,
    day_texts,
    days,
    integer_texts,
    integers,
    moment_texts,
    moments,
    where_plain,
)

TIMES = frozenset({"date", "timestamp"})
_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 (wall clock: a zone is the column's affair)


class DateOptions(DrawOptions):
    """From ``min`` up to and with ``max``."""

    min: date = date(1950, 1, 1)
    max: date = date(2020, 12, 31)


class Date(Transformer):
    """A date; in a column of timestamps its midnight."""

    options_model = DateOptions
    families = TIMES
    takes_nulls = True

    def check(self) -> None:
        if self.options.min > self.options.max:
            raise UnfitError("min is at most max")

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        low = self.options.min.toordinal() - _EPOCH.toordinal()
        high = self.options.max.toordinal() - _EPOCH.toordinal()
        found = between(self.drawn(values), low, high)
        if self.facts.family == "date":
            return day_texts(found)
        return moment_texts(found * DAY, self.facts)


class TimestampOptions(DrawOptions):
    """From ``min`` up to ``max``, both in UTC where the column has a zone."""

    min: datetime = datetime(1950, 1, 1)  # noqa: DTZ001
    max: datetime = datetime(2020, 12, 31)  # noqa: DTZ001
    truncate: Literal["second", "minute", "hour", "day"] = "second"


_UNITS = {"second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": DAY}


class Timestamp(Transformer):
    """A moment."""

    options_model = TimestampOptions
    families = frozenset({"timestamp"})
    takes_nulls = True

    def check(self) -> None:
        if self.options.min.tzinfo is not None or self.options.max.tzinfo is not None:
            raise UnfitError("min and max are written without a zone")
        if self.options.min > self.options.max:
            raise UnfitError("min is at most max")

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        low, high = (
            int((moment - _EPOCH).total_seconds()) * 1_000_000
            for moment in (self.options.min, self.options.max)
        )
        found = between(self.drawn(values), low, high)
        unit = _UNITS[self.options.truncate]
        return moment_texts(found - found % unit, self.facts)


class UnixTimestampOptions(DrawOptions):
    """From ``min`` up to and with ``max``, as seconds since 1970 times ``unit``."""

    min: int = 0
    max: int = 1_600_000_000
    unit: Literal["seconds", "milliseconds", "microseconds"] = "seconds"


class UnixTimestamp(Transformer):
    """A moment as a number."""

    options_model = UnixTimestampOptions
    families = frozenset({"integer", "numeric"})
    takes_nulls = True

    def check(self) -> None:
        if self.options.min > self.options.max:
            raise UnfitError("min is at most max")
        if self.facts.family == "integer" and self._high() >= 2**self.facts.bits:
            raise UnfitError(f"such numbers do not fit {self.facts.type_name}")

    def _factor(self) -> int:
        return {"seconds": 1, "milliseconds": 1000, "microseconds": 10**6}[self.options.unit]

    def _high(self) -> int:
        return int(self.options.max) * self._factor()

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        low = self.options.min * self._factor()
        return integer_texts(between(self.drawn(values), low, self._high()))


class ShiftOptions(NoOptions):
    """At most ``days`` earlier or later. ``by`` names the column whose value says how much: rows
    with the same one move by the same, so that their order and the time between them stay.
    """

    days: int = Field(default=365, ge=1, le=36500)
    by: str


class Shift(Transformer):
    """Dates, timestamps and Unix timestamps, moved together with those of the same family."""

    options_model = ShiftOptions
    families = TIMES | {"integer"}

    @property
    def raw_inputs(self) -> tuple[str, ...]:
        return (self.options.by,)

    def check(self) -> None:
        if self.options.by == self.facts.name:
            raise UnfitError("by names another column: a date would tell its own shift")

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        family = inputs.raw[self.options.by].fill_null("")
        drawn = self.drawn(family)
        # Never zero: else some would not move.
        most = self.options.days
        moved = between(drawn, 1, most) * np.where(between(drawn, 0, 1, 1), 1, -1)
        if self.facts.family == "integer":
            numbers = integers(values)
            # Milli- and microseconds have more digits than any second of this era.
            unit = np.select([np.abs(numbers) < 10**11, np.abs(numbers) < 10**14], [1, 1000], 10**6)
            return integer_texts(numbers + moved * 86_400 * unit)
        if self.facts.family == "date":
            found, plain = days(values)
            return where_plain(plain, day_texts(found + moved), values)
        at, plain = moments(values, self.facts)
        return where_plain(plain, moment_texts(at + moved * DAY, self.facts), values)


class TimeNoiseOptions(DrawOptions):
    """At most so many days, or seconds, earlier or later."""

    days: int | None = Field(default=None, ge=1)
    seconds: int | None = Field(default=None, ge=1)


class TimeNoise(Transformer):
    """A date or timestamp near the one that came."""

    options_model = TimeNoiseOptions
    families = TIMES

    def check(self) -> None:
        if (self.options.days is None) == (self.options.seconds is None):
            raise UnfitError("write days or seconds")
        if self.facts.family == "date" and self.options.days is None:
            raise UnfitError("a date takes days")

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        drawn = self.drawn(values)
        if self.facts.family == "date":
            found, plain = days(values)
            moved = between(drawn, -self.options.days, self.options.days)
            return where_plain(plain, day_texts(found + moved), values)
        most = (self.options.days or 0) * DAY + (self.options.seconds or 0) * 1_000_000
        at, plain = moments(values, self.facts)
        return where_plain(
            plain, moment_texts(at + between(drawn, -most, most), self.facts), values
        )


class TruncateOptions(NoOptions):
    """What is left: the year, quarter, month, week, day or hour."""

    to: Literal["year", "quarter", "month", "week", "day", "hour"]


class TruncateTime(Transformer):
    """Dates and timestamps cut off, so that many rows share one."""

    options_model = TruncateOptions
    families = TIMES
    is_keyed = False

    def check(self) -> None:
        if self.facts.family == "date" and self.options.to == "hour":
            raise UnfitError("a date has no hours")

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        if self.facts.family == "date":
            found, plain = days(values)
            return where_plain(plain, day_texts(self._cut(found * DAY) // DAY), values)
        at, plain = moments(values, self.facts)
        return where_plain(plain, moment_texts(self._cut(at), self.facts), values)

    def _cut(self, at: Ints) -> Ints:
        floored = pc.floor_temporal(pa.array(at).cast(pa.timestamp("us")), unit=self.options.to)
        return np.asarray(floored.cast(pa.int64()))
