"""Values of row conditions at run time, a column at a time: SQL's operators over NumPy and Arrow.

Each row of a value is in one of three states: it has a value, it is null, or it is ``odd``:
nobody knows it, because it was not sent, because no Arrow type holds it, or because Postgres would
refuse to compute it. What follows from a null is known; what follows from the odd mostly is not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.image import Mask
from penstock.decode.typed import TypedColumn
from penstock.transform.row_condition_types import SqlType

_DAY_MICROS = 86_400_000_000
# Days that a number of microseconds in 64 bits can tell, both ways from 1970.
_LAST_DAY = (2**63 - 1) // _DAY_MICROS - 1
# Far more than two roundings to 16 digits, far less than what people compare.
_NEAR = 1e-13
_IN_NUMPY = frozenset({"boolean", "integer", "float", "date", "timestamp", "timestamptz", "time"})


@dataclass(frozen=True)
class Value:
    """One entry a row. ``data`` is a NumPy or Arrow array, or a scalar that holds for all rows;
    what it has where a row is not ``valid`` means nothing. No row is both valid and odd.
    """

    data: Any
    valid: Mask
    odd: Mask

    @property
    def null(self) -> Mask:
        return ~(self.valid | self.odd)

    # Of booleans:

    @property
    def true(self) -> Mask:
        mask: Mask = self.valid & self.data
        return mask

    @property
    def false(self) -> Mask:
        mask: Mask = self.valid & ~self.data
        return mask


def constant(scalar: Any, is_null: bool, count: int) -> Value:
    return Value(scalar, np.full(count, not is_null), np.zeros(count, bool))


def unknown(count: int) -> Value:
    return Value(np.int64(0), np.zeros(count, bool), np.ones(count, bool))


def truth(true: Mask, false: Mask, odd: Mask) -> Value:
    return Value(true, true | false, odd)


def from_column(column: TypedColumn, unset: Mask | None, type: SqlType) -> Value:  # noqa: A002
    """A column's values; odd where ``unset``, and where Arrow cannot hold them."""
    values = column.values
    odd = np.zeros(len(values), bool) if unset is None else unset.copy()
    if column.unrepresentable is not None:
        odd |= column.unrepresentable.to_numpy(zero_copy_only=False)
    if type.family == "numeric" and type.unbounded:
        values, too_long = _decimals(values, type)
        odd |= too_long
    valid = _valid(values) & ~odd
    if type.family not in _IN_NUMPY:
        return Value(values, valid, odd)
    if type.family in ("date", "time", "timestamp", "timestamptz"):
        values = values.view(pa.int32() if type.family == "date" else pa.int64())
    numbers = pc.fill_null(values, False if type.family == "boolean" else 0)
    data = numbers.to_numpy(zero_copy_only=False)
    if type.family not in ("boolean", "float"):
        data = data.astype(np.int64)
    return Value(data, valid, odd)


def from_presence(texts: pa.Array, unset: Mask | None) -> Value:
    """Whether each value is null. That needs no type."""
    odd = np.zeros(len(texts), bool) if unset is None else unset
    valid = _valid(texts)
    return truth(~valid & ~odd, valid & ~odd, odd)


def _valid(values: pa.Array) -> Mask:
    if not values.null_count:
        return np.ones(len(values), bool)
    valid: Mask = values.is_valid().to_numpy(zero_copy_only=False)
    return valid


def _decimals(texts: pa.Array, type: SqlType) -> tuple[pa.Array, Mask]:  # noqa: A002
    """Texts of numerics as decimals, and which have more digits than fit, or are not finite."""
    sizes = pc.fill_null(pc.binary_length(texts), 0).to_numpy().astype(np.int64)
    dots = pc.fill_null(pc.find_substring(texts, "."), -1).to_numpy().astype(np.int64)
    scale = np.where(dots < 0, 0, sizes - dots - 1)
    negative = pc.fill_null(pc.starts_with(texts, "-"), False).to_numpy(zero_copy_only=False)
    whole = np.where(dots < 0, sizes, dots) - negative
    named = pc.fill_null(pc.match_substring_regex(texts, "[a-zA-Z]"), False)
    odd = (whole > type.whole) | (scale > type.scale) | named.to_numpy(zero_copy_only=False)
    fitting = pc.if_else(pa.array(odd), pa.scalar(None, pa.string()), texts)
    return fitting.cast(type.decimal), odd


# -- what follows from two values ---------------------------------------------------------------


def _both(a: Value, b: Value) -> tuple[Mask, Mask]:
    """Where both have a value, and where that is not known. A null on either side settles it."""
    return a.valid & b.valid, (a.odd & ~b.null) | (b.odd & ~a.null)


def compare(operator: str, a: Value, b: Value) -> Value:
    """=, <>, <, <=, > or >= of values of one type."""
    valid, odd = _both(a, b)
    mask = _mask(_COMPARE[operator](a.data, b.data), valid)
    return Value(mask, valid, odd)


def compare_quotients(operator: str, a: Value, b: Value) -> Value:
    """The same where a side was rounded: values that are nearly equal are not decided."""
    found = compare(operator, a, b)
    scale = np.maximum(np.abs(a.data), np.abs(b.data))
    near = found.valid & (np.abs(a.data - b.data) <= scale * _NEAR)
    return Value(found.data, found.valid & ~near, found.odd | near)


def distinct(equal: Value, a: Value, b: Value) -> Value:
    """IS DISTINCT FROM, from what ``=`` says: null is like any other value."""
    false = equal.true | (a.null & b.null)
    true = equal.false | (a.null & b.valid) | (a.valid & b.null)
    return truth(true, false, equal.odd | a.odd | b.odd)


def contained(a: Value, items: Sequence[Any], has_null: bool) -> Value:
    """IN a list of constants of its type."""
    if isinstance(a.data, pa.Array | pa.Scalar):
        data = a.data if isinstance(a.data, pa.Array) else pa.array([a.data.as_py()], a.data.type)
        found = pc.is_in(data, value_set=pa.array([i.as_py() for i in items], data.type))
        mask = _mask(found.to_numpy(zero_copy_only=False), a.valid)
    else:
        mask = _mask(np.isin(a.data, np.array(items)), a.valid)
    true = a.valid & mask
    false = np.zeros(len(true), bool) if has_null else a.valid & ~mask
    return truth(true, false, a.odd)


def both(a: Value, b: Value) -> Value:
    """AND: one false decides."""
    false = a.false | b.false
    return truth(a.true & b.true, false, (a.odd | b.odd) & ~false)


def either(a: Value, b: Value) -> Value:
    """OR: one true decides."""
    true = a.true | b.true
    return truth(true, a.false & b.false, (a.odd | b.odd) & ~true)


def opposite(a: Value) -> Value:
    return truth(a.false, a.true, a.odd)


def first_known(a: Value, b: Value) -> Value:
    """COALESCE of two values of one type."""
    if any(isinstance(value.data, pa.Array | pa.Scalar) for value in (a, b)):
        data = pc.if_else(pa.array(a.valid), a.data, b.data)
    else:
        data = np.where(a.valid, a.data, b.data)
    null = a.null
    return Value(data, a.valid | (null & b.valid), a.odd | (null & b.odd))


def _mask(found: Any, like: Mask) -> Mask:
    if isinstance(found, pa.Scalar):
        return np.full(len(like), bool(found.as_py()))
    if isinstance(found, pa.Array):
        found = pc.fill_null(found, False).to_numpy(zero_copy_only=False)
    return np.broadcast_to(found, like.shape)


def _equal(a: Any, b: Any) -> Any:
    if isinstance(a, pa.Array | pa.Scalar):
        return pc.equal(a, b)
    return (a == b) | (_is_nan(a) & _is_nan(b))


def _less(a: Any, b: Any) -> Any:
    """NaN is equal to itself and above all others."""
    if isinstance(a, pa.Array | pa.Scalar):
        return pc.less(a, b)
    return (a < b) | (~_is_nan(a) & _is_nan(b))


def _is_nan(data: Any) -> Any:
    return np.isnan(data) if data.dtype.kind == "f" else np.False_


def _negated(found: Any) -> Any:
    return pc.invert(found) if isinstance(found, pa.Array | pa.Scalar) else ~found


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": _equal,
    "<>": lambda a, b: _negated(_equal(a, b)),
    "<": _less,
    "<=": lambda a, b: _negated(_less(b, a)),
    ">": lambda a, b: _less(b, a),
    ">=": lambda a, b: _negated(_less(a, b)),
}


# -- conversions --------------------------------------------------------------------------------


def to_decimal(a: Value, type: SqlType) -> Value:  # noqa: A002
    data = a.data
    if not isinstance(data, pa.Array | pa.Scalar):
        # Rows without a value may hold anything, which need not fit.
        data = pa.scalar(int(data)) if np.ndim(data) == 0 else pa.array(data, mask=~a.valid)
        data = data.cast(pa.decimal128(19, 0))
    return Value(data.cast(type.decimal), a.valid, a.odd)


def to_float(a: Value, bits: int) -> Value:
    """Numerics go through their text: only that rounds correctly."""
    data, kind = a.data, np.float32 if bits == 32 else np.float64
    if isinstance(data, pa.Array | pa.Scalar):
        arrow = pa.float32() if bits == 32 else pa.float64()
        data = data.cast(pa.string()).cast(arrow)
        if isinstance(data, pa.Scalar):
            data = kind(0 if data.as_py() is None else data.as_py())
        else:
            data = pc.fill_null(data, 0).to_numpy()
    return Value(data.astype(kind), a.valid, a.odd)


def to_timestamp(a: Value) -> Value:
    """Midnight of a date; those that no timestamp reaches are odd."""
    far = a.valid & (np.abs(a.data) > _LAST_DAY)
    return Value(a.data * np.int64(_DAY_MICROS), a.valid & ~far, a.odd | far)


def without_padding(a: Value) -> Value:
    return Value(pc.utf8_rtrim(a.data, characters=" "), a.valid, a.odd)


# -- arithmetic ---------------------------------------------------------------------------------


def _computed(a: Value, b: Value, data: Any, refused: Any = np.False_) -> Value:
    """``refused``: where Postgres raises an error."""
    valid, odd = _both(a, b)
    bad = valid & refused
    return Value(data, valid & ~bad, odd | bad)


def integers(operator: str, a: Value, b: Value, bits: int) -> Value:
    x, y = np.asarray(a.data), np.asarray(b.data)
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


def floats(operator: str, a: Value, b: Value) -> Value:
    x, y = np.asarray(a.data), np.asarray(b.data)
    with np.errstate(all="ignore"):
        data = _FLOATS[operator](x, y)
    wrong = np.isinf(data) & np.isfinite(x) & np.isfinite(y)
    if operator == "/":
        wrong = wrong | ((y == 0) & ~np.isnan(x))
    if operator in "*/":  # underflow
        wrong = wrong | ((data == 0) & (x != 0) & (y != 0) & np.isfinite(y))
    return _computed(a, b, data, wrong)


def decimals(operator: str, a: Value, b: Value, type: SqlType) -> Value:  # noqa: A002
    """``type`` has room for every result."""
    function = {"+": pc.add, "-": pc.subtract, "*": pc.multiply}[operator]
    x, y = a.data, b.data
    if type.digits > 38:  # Arrow does not widen by itself
        x, y = (data.cast(pa.decimal256(data.type.precision, data.type.scale)) for data in (x, y))
    return _computed(a, b, function(x, y).cast(type.decimal))


_FLOATS: dict[str, Callable[[Any, Any], npt.NDArray[Any]]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
}


# -- texts --------------------------------------------------------------------------------------


def like_pattern(pattern: str, escape: str, lower: bool) -> str:
    """The regular expression that matches what LIKE does; ``lower``: in lower-case ASCII."""
    pieces, escaped = [], False
    for character in pattern:
        if escaped or character not in ("%", "_", escape):
            pieces.append(
                _quoted(character.lower() if lower and character.isascii() else character)
            )
            escaped = False
        elif character == escape:
            escaped = True
        else:
            pieces.append(".*" if character == "%" else ".")
    return r"(?s)\A" + "".join(pieces) + r"\z"


def _quoted(character: str) -> str:
    # RE2 knows letters and digits as they are, and everything else by its number.
    return (
        character if character.isascii() and character.isalnum() else f"\\x{{{ord(character):x}}}"
    )


def like(a: Value, expression: str) -> Value:
    found = pc.match_substring_regex(a.data, expression)
    return Value(_mask(found, a.valid), a.valid, a.odd)


def in_case(a: Value, upper: bool) -> Value:
    """Letters beyond ASCII have other cases in other locales: texts with such are odd."""
    ascii_only = _mask(pc.string_is_ascii(a.data), a.valid)
    data = pc.ascii_upper(a.data) if upper else pc.ascii_lower(a.data)
    strange = a.valid & ~ascii_only
    return Value(data, a.valid & ~strange, a.odd | strange)


def length(a: Value, of_bytes: bool) -> Value:
    sizes = pc.binary_length(a.data) if of_bytes else pc.utf8_length(a.data)
    if isinstance(sizes, pa.Scalar):
        return Value(np.int64(sizes.as_py() or 0), a.valid, a.odd)
    return Value(pc.fill_null(sizes, 0).to_numpy().astype(np.int64), a.valid, a.odd)
