"""Numbers: drawn anew, noise, rounding and bucketing."""

from __future__ import annotations

from itertools import pairwise
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
    Uniqueness,
    ValueRefusedError,
)
from penstock.transform.transformers.drawing import between, fractions, joined
from penstock.transform.transformers.parsing import (
    floats,
    integer_texts,
    integers,
    number_texts,
)

NUMBERS = frozenset({"integer", "numeric", "float"})


class IntegerOptions(DrawOptions):
    """Whole numbers from ``min`` up to and with ``max``."""

    min: int = 0
    max: int = 2**31 - 1


class Integer(Transformer):
    """A whole number."""

    options_model = IntegerOptions
    families = NUMBERS | {"text"}
    takes_nulls = True

    def check(self) -> None:
        low, high = self.options.min, self.options.max
        if low > high or not -(2**63) <= low <= high < 2**63:
            raise UnfitError("min is at most max, and both have 64 bits")
        limit = 2**63
        if self.facts.family == "integer":
            limit = 2**self.facts.bits
        elif self.facts.whole is not None:
            limit = 10**self.facts.whole
        elif self.facts.length is not None:
            limit = int(10**self.facts.length)
        if high >= limit or low < -limit:
            raise UnfitError(f"numbers up to {high} do not fit {self.facts.type_name}")

    @property
    def uniqueness(self) -> Uniqueness:
        return "not promised" if self.options.max - self.options.min >= 2**60 else "lost"

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        return integer_texts(between(self.drawn(values), self.options.min, self.options.max))


class FloatOptions(DrawOptions):
    """Numbers from ``min`` up to ``max``, with ``precision`` digits behind the point."""

    min: float = 0.0
    max: float = 1.0
    precision: int | None = Field(default=None, ge=0, le=15)


class Float(Transformer):
    """A number."""

    options_model = FloatOptions
    families = NUMBERS - {"integer"}
    takes_nulls = True

    def check(self) -> None:
        if self.options.min > self.options.max:
            raise UnfitError("min is at most max")

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        low, high = self.options.min, self.options.max
        numbers = low + fractions(self.drawn(values)) * (high - low)
        return number_texts(numbers, self.facts, self.options.precision)


class NoiseOptions(DrawOptions):
    """At most so much more or less: ``ratio`` of the value itself, or ``amount``."""

    ratio: float | None = Field(default=None, gt=0, le=1)
    amount: float | None = Field(default=None, gt=0)


class Noise(Transformer):
    """A number near the one that came."""

    options_model = NoiseOptions
    families = NUMBERS

    def check(self) -> None:
        if (self.options.ratio is None) == (self.options.amount is None):
            raise UnfitError("write ratio or amount")

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        numbers = floats(values)
        way = 2 * fractions(self.drawn(values)) - 1
        if self.options.amount is not None:
            made = numbers + way * self.options.amount
        else:
            made = numbers + way * self.options.ratio * np.abs(numbers)
        return number_texts(made, self.facts, None)


class RoundOptions(NoOptions):
    """To multiples of ``to``."""

    to: float = Field(gt=0)
    way: Literal["nearest", "down", "up"] = "nearest"


_WAYS = {"nearest": np.rint, "down": np.floor, "up": np.ceil}


class Round(Transformer):
    """Numbers rounded, so that many rows share one."""

    options_model = RoundOptions
    families = NUMBERS
    is_keyed = False

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        to = self.options.to
        if self.facts.family == "integer" and to == int(to):
            return integer_texts(self._whole(integers(values), int(to)))
        return number_texts(_WAYS[self.options.way](floats(values) / to) * to, self.facts, None)

    def _whole(self, numbers: np.typing.NDArray[np.int64], to: int) -> np.typing.NDArray[np.int64]:
        """Exactly, as doubles would not."""
        rest = numbers % to
        ways = {"down": np.zeros(len(rest), bool), "up": rest > 0, "nearest": rest * 2 >= to}
        up = ways[self.options.way]
        # What would leave the type goes the other way.
        first, last = -(2**self.facts.bits), 2**self.facts.bits - 1
        up = np.where(up & (numbers > last - (to - rest)), False, up)
        up = np.where(~up & (numbers < first + rest), True, up)
        return numbers - rest + np.where(up, to, 0)


_LARGEST_WHOLE = 2.0**53
"""Up to here doubles tell all whole numbers apart."""


class BucketOptions(NoOptions):
    """``width`` of a bucket, or the ``bounds`` between them."""

    width: int | None = Field(default=None, gt=0)
    bounds: list[float] | None = Field(default=None, min_length=1)


class NumberRange(Transformer):
    """The range that a number lies in, as text (``30-39``); among numbers, where it begins."""

    options_model = BucketOptions
    families = NUMBERS | {"text"}
    is_keyed = False

    def check(self) -> None:
        bounds = self.options.bounds
        if (self.options.width is None) == (bounds is None):
            raise UnfitError("write width or bounds")
        if bounds is not None and sorted(set(bounds)) != bounds:
            raise UnfitError("bounds are ascending")

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        numbers = floats(values)
        if self.options.width is not None:
            low = np.floor(numbers / self.options.width) * self.options.width
            if self.facts.family != "text":
                return number_texts(low, self.facts, None)
            if not (np.abs(low) < _LARGEST_WHOLE).all():
                raise ValueRefusedError("a value has no range: it is not finite, or too large")
            high = low + self.options.width - 1
            return self.cut(joined(_whole_texts(low), "-", _whole_texts(high)))
        bounds = self.options.bounds
        place = np.searchsorted(bounds, numbers, side="right")
        if self.facts.family != "text":
            low = np.asarray([bounds[0], *bounds])[place]
            return number_texts(low, self.facts, None)
        spelled = [f"{bound:g}" for bound in bounds]
        names = [f"<{spelled[0]}"]
        names += [f"{a}-{b}" for a, b in pairwise(spelled)]
        names.append(f">={spelled[-1]}")
        return self.cut(pa.array(names).take(pa.array(place)))


def _whole_texts(numbers: np.typing.NDArray[np.float64]) -> pa.Array:
    return pc.cast(pa.array(numbers.astype(np.int64)), pa.string())
