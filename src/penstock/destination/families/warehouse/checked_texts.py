"""Postgres's texts as a warehouse reads them from a file, and which of them it cannot hold.

Values stay texts until the warehouse itself turns them into its types. So every value is looked at
before, on the executors: what a type does not hold is unfit (typed_columns.py), never cut silently.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destination.encode.json_arrays import json_arrays, json_texts
from penstock.destination.encode.json_values import json_values
from penstock.destination.families.staged_merge.typed_columns import EngineTypes, Mask
from penstock.model.plain_type import TEXT, plain_pg_type

_JSON = ("json", "jsonb")
_FLOATS = ("float4", "float8")
_ZERO = r"(^|[^\\])(\\\\)*\\u0000"
# So many digits, or an exponent: a number with fewer is a double.
_LONG = r"[0-9][0-9.]{14,}|[0-9][eE]"
_NO_LIMIT = 2**31 - 1


@dataclass(frozen=True)
class TypeLimits:
    """The most bytes of a text, of binary data, of a JSON document, and of a string inside of one;
    the most digits behind a decimal's point. ``has_doubles``: numbers of documents are integers of
    64 bits or doubles, and none that is neither is taken for the nearest.
    """

    text: int = _NO_LIMIT
    binary: int = _NO_LIMIT
    document: int = _NO_LIMIT
    string: int = _NO_LIMIT
    scale: int = 38
    has_doubles: bool = False


@dataclass(frozen=True)
class CheckedTexts(EngineTypes):
    """``infinity`` is how the warehouse writes what Postgres calls Infinity. Arrays are JSON."""

    limits: TypeLimits = TypeLimits()
    infinity: str = "Infinity"

    def arrow(self, plain: str) -> pa.DataType:
        return pa.string()

    def shown(self, plain: str) -> str:
        return f"what the warehouse can hold of {plain}"

    def held_as(self, plain: str) -> str:
        """The type that a column has there: ``text`` for those that the warehouse does not know,
        ``json`` for JSON and arrays.
        """
        if plain.endswith("[]") or plain in _JSON:
            return "json"
        if plain == "uuid":
            return plain
        decoded = self._decoded_as(plain)
        if decoded.startswith("numeric") and scale_of(decoded)[1] > self.limits.scale:
            return TEXT
        return decoded

    def fit(self, text: pa.Array, plain: str, *, nearest: bool) -> tuple[pa.Array, Mask | None]:
        held = self.held_as(plain)
        if held == TEXT:
            return _short(text, self.limits.text, nearest=nearest)
        if held == "json":
            return self._documents(text, plain)
        if held == "uuid":
            return text, None
        values, unfit = super().fit(text, plain, nearest=nearest)
        if unfit is not None:
            text = pc.if_else(pa.array(unfit), values.cast(pa.string()), text)
        if plain == "bytea":
            text = pc.utf8_slice_codeunits(text, 2)
            return _left_out(text, _longer(text, 2 * self.limits.binary))
        if plain in _FLOATS and self.infinity != "Infinity":
            text = pc.replace_substring(text, "Infinity", self.infinity)
        return text, unfit

    def own_values(self, values: pa.Array, plain: str) -> pa.Array:
        if plain.endswith("[]"):
            return json_texts(values).cast(pa.string())
        if plain == "timestamptz":
            return pc.binary_join_element_wise(
                values.cast(pa.timestamp("us")).cast(pa.string()), "+00", ""
            )
        return super().own_values(values, plain)

    def _documents(self, text: pa.Array, plain: str) -> tuple[pa.Array, Mask | None]:
        if plain not in _JSON:
            element, _ = plain_pg_type(plain.removesuffix("[]"))
            text = json_arrays(text, lambda each: json_values(each, element)).cast(pa.string())
        unfit = _longer(text, self.limits.document)
        if plain.startswith("json"):
            # The only character that no text of a warehouse has; jsonb does not take it either.
            zero = pc.fill_null(pc.match_substring_regex(text, _ZERO), False)
            unfit |= zero.to_numpy(zero_copy_only=False)
        if self.limits.has_doubles:
            unfit |= _has_long_numbers(text, unfit)
        doubtful = np.flatnonzero(_longer(text, self.limits.string) & ~unfit)
        for row in doubtful:
            unfit[row] = self._has_long_string(json.loads(text[int(row)].as_py()))
        return _left_out(text, unfit)

    def _has_long_string(self, value: object) -> bool:
        if isinstance(value, str):
            return len(value.encode(errors="surrogatepass")) > self.limits.string
        if isinstance(value, dict):
            return any(map(self._has_long_string, [*value, *value.values()]))
        return isinstance(value, list) and any(map(self._has_long_string, value))


def has_room_for(before: str, after: str) -> bool:
    """Whether a decimal has as many digits behind its point as another, and no fewer before it."""
    if not (before.startswith("numeric") and after.startswith("numeric")):
        return False
    (digits, scale), (wanted, wanted_scale) = scale_of(before), scale_of(after)
    return scale == wanted_scale and digits <= wanted


def scale_of(numeric: str) -> tuple[int, int]:
    """The digits of ``numeric(p,s)``, and those behind its point, as a decimal has them."""
    precision, scale = map(int, numeric[8:-1].split(","))
    if scale < 0:
        return precision - scale, 0
    return max(precision, scale), scale


def _has_long_numbers(text: pa.Array, but: Mask) -> Mask:
    """Which documents have a number that neither 64 bits nor a double hold."""
    found = np.zeros(len(text), bool)
    maybe = pc.fill_null(pc.match_substring_regex(text, _LONG), False)
    for row in np.flatnonzero(maybe.to_numpy(zero_copy_only=False) & ~but):
        numbers: list[str] = []
        json.loads(text[int(row)].as_py(), parse_float=numbers.append, parse_int=numbers.append)
        found[row] = not all(map(_is_held, numbers))
    return found


def _is_held(number: str) -> bool:
    exact = Decimal(number)
    if exact == exact.to_integral_value() and -(2**63) <= exact < 2**64:
        return True
    nearest = float(number)
    return math.isfinite(nearest) and Decimal(repr(nearest)) == exact


def _longer(text: pa.Array, limit: int) -> Mask:
    found = pc.fill_null(pc.greater(pc.binary_length(text), limit), False)
    mask: Mask = found.to_numpy(zero_copy_only=False).copy()
    return mask


def _left_out(text: pa.Array, unfit: Mask) -> tuple[pa.Array, Mask | None]:
    if not unfit.any():
        return text, None
    return pc.if_else(pa.array(unfit), pa.scalar(None, text.type), text), unfit


def _short(text: pa.Array, limit: int, *, nearest: bool) -> tuple[pa.Array, Mask | None]:
    """Texts of so many bytes at most; nearest is the longest beginning that fits."""
    unfit = _longer(text, limit)
    if not nearest or not unfit.any():
        return _left_out(text, unfit)
    cut = [
        value.encode()[:limit].decode(errors="ignore")
        for value in text.filter(pa.array(unfit)).to_pylist()
    ]
    return pc.replace_with_mask(text, pa.array(unfit), pa.array(cut, text.type)), unfit
