"""Values of row conditions, a column at a time: what Arrow's functions do not know of SQL.

Each row of a value is in one of three states: it has a value, it is null, or it is ``odd``:
nobody knows it, because it was not sent, because no Arrow type holds it, or because Postgres would
refuse to compute it. What follows from a null is known; what follows from the odd mostly is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.image import Mask
from penstock.decode.typed import TypedColumn
from penstock.transform.row_condition_types import INT8, SqlType

# Days that a number of microseconds in 64 bits can tell, both ways from 1970.
_LAST_DAY = (2**63 - 1) // 86_400_000_000 - 1
# Far more than two roundings to 16 digits, far less than what people compare.
_NEAR = 1e-13


@dataclass(frozen=True)
class Value:
    """One entry a row, null where the row is ``odd``. ``data`` is an Arrow array, or a scalar that
    holds for all rows.
    """

    data: Any
    odd: Mask

    @cached_property
    def valid(self) -> Mask:
        if isinstance(self.data, pa.Scalar):
            return np.full(len(self.odd), self.data.is_valid)
        return _mask(self.data.is_valid())

    @property
    def null(self) -> Mask:
        return ~(self.valid | self.odd)

    @property
    def true(self) -> Mask:
        """Of booleans."""
        return np.broadcast_to(_mask(pc.fill_null(self.data, False)), self.odd.shape)

    @property
    def numbers(self) -> npt.NDArray[Any]:
        """Of integers and floats; anything where there is none."""
        numbers = pc.fill_null(self.data, 0)
        return np.asarray(numbers.as_py() if isinstance(numbers, pa.Scalar) else numbers)


def known(data: Any, odd: Mask) -> Value:
    """The data without what is odd."""
    if not odd.any():
        return Value(data, odd)
    return Value(pc.if_else(pa.array(odd), pa.scalar(None, data.type), data), odd)


def constant(scalar: pa.Scalar, count: int) -> Value:
    return Value(scalar, np.zeros(count, bool))


def nobody_knows(count: int) -> Value:
    return Value(pa.nulls(count), np.ones(count, bool))


def from_column(column: TypedColumn, unset: Mask | None, kind: SqlType) -> Value:
    """A column's values; odd where ``unset``, and where Arrow cannot hold them."""
    data, odd = column.values, np.zeros(len(column.values), bool) if unset is None else unset
    if column.unrepresentable is not None:
        odd = odd | _mask(column.unrepresentable)
    if kind.unbounded:
        fitting = rf"^-?[0-9]{{1,{kind.whole}}}(\.[0-9]{{1,{kind.scale}}})?$"
        odd = odd | ~_mask(pc.fill_null(pc.match_substring_regex(data, fitting), True))
    return Value(known(data, odd).data.cast(kind.arrow), odd)


def from_presence(texts: pa.Array, unset: Mask | None) -> Value:
    """Whether each value is null. That needs no type."""
    return known(texts.is_null(), np.zeros(len(texts), bool) if unset is None else unset)


def _mask(found: Any) -> Mask:
    """Of booleans, none of them null."""
    if isinstance(found, pa.Scalar):
        return np.asarray(found.as_py())
    mask: Mask = found.to_numpy(zero_copy_only=False)
    return mask


# -- what follows from two values ---------------------------------------------------------------


def _both(a: Value, b: Value, data: Any, refused: Any = np.False_) -> Value:
    """What was computed where both have a value, and Postgres has not ``refused``. A null on either
    side settles it.
    """
    odd = (a.odd & ~b.null) | (b.odd & ~a.null) | (a.valid & b.valid & refused)
    return known(data, odd)


def compare(operator: str, a: Value, b: Value) -> Value:
    """=, <>, <, <=, > or >= of values of one type. NaN is equal to itself and above all others."""
    x, y = (b.data, a.data) if operator in (">", "<=") else (a.data, b.data)
    equality = operator in ("=", "<>")
    found = pc.equal(x, y) if equality else pc.less(x, y)
    if pa.types.is_floating(x.type):
        known_nan = (pc.and_ if equality else pc.and_not)(pc.is_nan(y), pc.is_nan(x))
        found = pc.or_(found, known_nan)
    return _both(a, b, pc.invert(found) if operator in ("<>", "<=", ">=") else found)


def compare_quotients(operator: str, a: Value, b: Value) -> Value:
    """The same where a side was rounded: values that are nearly equal are not decided."""
    found, x, y = compare(operator, a, b), a.numbers, b.numbers
    with np.errstate(invalid="ignore"):
        near = np.abs(x - y) <= np.maximum(np.abs(x), np.abs(y)) * _NEAR
    return known(found.data, found.odd | (found.valid & near))


def distinct(equal: Value, a: Value, b: Value) -> Value:
    """IS DISTINCT FROM, from what ``=`` says: null is like any other value."""
    nulls = pa.array(a.null != b.null)
    found = pc.if_else(pa.array(a.null | b.null), nulls, pc.invert(equal.data))
    return known(found, equal.odd | a.odd | b.odd)


def contained(a: Value, items: Sequence[pa.Scalar], has_null: bool) -> Value:
    """IN a list of constants of its type."""
    found = pc.is_in(a.data, value_set=pa.array([item.as_py() for item in items], a.data.type))
    decided = a.valid & (_mask(found) | (not has_null))
    return known(pc.if_else(pa.array(decided), found, pa.scalar(None, pa.bool_())), a.odd)


def both(a: Value, b: Value) -> Value:
    """AND: one false decides."""
    return _junction(a, b, pc.and_kleene(a.data, b.data))


def either(a: Value, b: Value) -> Value:
    """OR: one true decides."""
    return _junction(a, b, pc.or_kleene(a.data, b.data))


def _junction(a: Value, b: Value, data: Any) -> Value:
    return Value(data, (a.odd | b.odd) & _mask(pc.is_null(data)))


def opposite(a: Value) -> Value:
    return Value(pc.invert(a.data), a.odd)


def is_truth(a: Value, wanted: bool) -> Value:
    """IS TRUE or IS FALSE: a null is neither."""
    data = a.data if wanted else pc.invert(a.data)
    return known(pc.fill_null(data, False), a.odd)


def first_known(a: Value, b: Value) -> Value:
    """COALESCE of two values of one type."""
    return known(pc.coalesce(a.data, b.data), a.odd | (a.null & b.odd))


# -- conversions --------------------------------------------------------------------------------


def to_decimal(a: Value, kind: SqlType) -> Value:
    # Arrow does not cast integers to decimals of fewer digits than their type can have.
    data = a.data.cast(pa.decimal128(19, 0)) if a.data.type == INT8.arrow else a.data
    return Value(data.cast(kind.arrow), a.odd)


def to_float(a: Value, kind: SqlType) -> Value:
    """Numerics go through their text: only that rounds correctly."""
    data = a.data.cast(pa.string()) if pa.types.is_decimal(a.data.type) else a.data
    return Value(data.cast(kind.arrow, safe=False), a.odd)


def to_timestamp(a: Value, kind: SqlType) -> Value:
    """Midnight of a date; those that no timestamp reaches are odd."""
    days = Value(a.data.cast(pa.int32()), a.odd).numbers
    near = known(a.data, a.odd | (a.valid & (np.abs(days) > _LAST_DAY)))
    return Value(near.data.cast(kind.arrow), near.odd)


def without_padding(a: Value) -> Value:
    return Value(pc.utf8_rtrim(a.data, characters=" "), a.odd)


# -- arithmetic ---------------------------------------------------------------------------------


def integers(operator: str, a: Value, b: Value, bits: int) -> Value:
    x, y = a.numbers, b.numbers
    with np.errstate(all="ignore"):
        if operator in "*/":
            divisor = np.where(y == 0, 1, y)
            wrong = (x == np.iinfo(np.int64).min) & (y == -1)
        if operator == "/":
            floor = x // divisor
            data = floor + ((floor * divisor != x) & ((x < 0) != (divisor < 0)))
            wrong = wrong | (y == 0)
        elif operator == "*":
            data = x * y
            wrong = wrong | ((data // divisor != x) & (y != 0))
        else:
            data, other = (x + y, y) if operator == "+" else (x - y, ~y)
            wrong = ((x ^ data) & (other ^ data)) < 0
    last = np.int64(2 ** (bits - 1) - 1)
    return _computed(a, b, data, wrong | (data > last) | (data < ~last))


def floats(operator: str, a: Value, b: Value, kind: SqlType) -> Value:
    x, y = (side.numbers.astype(kind.arrow.to_pandas_dtype()) for side in (a, b))
    with np.errstate(all="ignore"):
        data = _FLOATS[operator](x, y)
    wrong = np.isinf(data) & np.isfinite(x) & np.isfinite(y)
    if operator == "/":
        wrong = wrong | ((y == 0) & ~np.isnan(x))
    if operator in "*/":  # underflow
        wrong = wrong | ((data == 0) & (x != 0) & (y != 0) & np.isfinite(y))
    return _computed(a, b, data, wrong)


def _computed(a: Value, b: Value, data: npt.NDArray[Any], refused: Any) -> Value:
    valid = a.valid & b.valid
    return _both(a, b, pa.array(np.broadcast_to(data, valid.shape), mask=~valid), refused)


def decimals(operator: str, a: Value, b: Value, kind: SqlType) -> Value:
    """``kind`` has room for every result."""
    function = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[operator]
    x, y = a.data, b.data
    if kind.digits > 38:  # Arrow does not widen by itself
        x, y = (data.cast(pa.decimal256(data.type.precision, data.type.scale)) for data in (x, y))
    return _both(a, b, function(x, y).cast(kind.arrow))


_FLOATS: dict[str, Callable[[Any, Any], npt.NDArray[Any]]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide,
}  # fmt: skip


# -- texts --------------------------------------------------------------------------------------


def like(a: Value, pattern: str, escape: str, ignore_case: bool) -> Value:
    """LIKE, or ILIKE. Arrow's own takes a backslash literally in patterns that end with %."""
    pieces = re.findall(f"{re.escape(escape)}.|." if escape else ".", pattern, re.DOTALL)
    if ignore_case:
        a = in_case(a, upper=False)
        # Bytes have a lower case in ASCII alone.
        pieces = [piece.encode().lower().decode() for piece in pieces]
    wild = {"%": ".*", "_": "."}
    # RE2 takes every character by its number.
    matched = "".join(wild.get(piece) or f"\\x{{{ord(piece[-1]):x}}}" for piece in pieces)
    return Value(pc.match_substring_regex(a.data, rf"(?s)\A{matched}\z"), a.odd)


def in_case(a: Value, upper: bool) -> Value:
    """Letters beyond ASCII have other cases in other locales: texts with such are odd."""
    data = pc.ascii_upper(a.data) if upper else pc.ascii_lower(a.data)
    strange = ~np.broadcast_to(_mask(pc.fill_null(pc.string_is_ascii(a.data), True)), a.odd.shape)
    return known(data, a.odd | strange)


def length(a: Value) -> Value:
    sizes = pc.binary_length if a.data.type == pa.binary() else pc.utf8_length
    return Value(sizes(a.data).cast(INT8.arrow), a.odd)
