"""Integers, floats, booleans and numeric."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from penstock.decode.types.constant_text import texts
from penstock.decode.types.text_column import MalformedTextError, TextColumn, TypedColumn

_MINUS, _DOT, _ZERO, _NINE, _TRUE, _FALSE = b"-.09tf"
_WITHOUT_MAGNITUDE = texts("0", "-0", "NaN", "Infinity", "-Infinity")
_NOT_FINITE = texts("NaN", "Infinity", "-Infinity")
_DECIMAL = re.compile(r"(-?)([0-9]+)(?:\.([0-9]+))?")


def decode_integer(column: TextColumn, arrow: pa.DataType) -> TypedColumn:
    # Arrow's cast is strict and checks the range, but reads 0x1F as 31.
    if not column.all_bytes_up_to(_NINE):
        raise MalformedTextError("expected digits with an optional minus")
    return TypedColumn(column.array.cast(arrow))


def decode_float(column: TextColumn, arrow: pa.DataType) -> TypedColumn:
    values = column.array.cast(arrow)
    numbers = np.frombuffer(
        values.buffers()[1],
        np.float32 if arrow == pa.float32() else np.float64,
        column.size,
        values.offset * arrow.byte_width,
    )
    # Arrow turns what overflows into infinity and what underflows into zero, without a word.
    doubtful = ~np.isfinite(numbers) | (numbers == 0)
    if column.valid is not None:
        doubtful &= column.valid
    if doubtful.any():
        rows = TextColumn(column.array.filter(pa.array(doubtful)))
        if not rows.is_one_of(_WITHOUT_MAGNITUDE).all():
            raise MalformedTextError("out of the type's range, or not spelled as Postgres does")
    return TypedColumn(values)


def decode_boolean(column: TextColumn) -> TypedColumn:
    rows = column.starts.size
    true = column.data == _TRUE
    if (
        column.data.size != rows
        or not ((column.ends - column.starts) == 1).all()
        or not (true | (column.data == _FALSE)).all()
    ):
        raise MalformedTextError("expected t or f")
    bits = np.packbits(column.spread(true), bitorder="little")
    buffers = [column.validity(), pa.py_buffer(bits)]
    return TypedColumn(pa.Array.from_buffers(pa.bool_(), column.size, buffers))


def decimal_type(precision: int, scale: int) -> pa.DataType | None:
    """The decimal that holds every numeric(precision, scale); None where Arrow has none.

    Scales outside 0..precision are widened to a decimal whose scale lies in that range, since
    few readers of Arrow accept others: numeric(5,-2) needs 7 digits, numeric(3,5) needs 5.
    """
    digits = precision - scale if scale < 0 else max(precision, scale)
    scale = max(scale, 0)
    if digits <= 38:
        return pa.decimal128(digits, scale)
    return pa.decimal256(digits, scale) if digits <= 76 else None


def decode_decimal(column: TextColumn, arrow: pa.DataType) -> TypedColumn:
    """NaN and Infinity are values of numeric that no decimal holds."""
    if _fills_the_scale(column, arrow):
        return TypedColumn(column.array.cast(arrow))
    special = column.is_one_of(_NOT_FINITE)
    rest = TextColumn(column.where(~special))
    if rest.array.null_count == rest.size:
        values = pa.nulls(rest.size, arrow)
    elif _fills_the_scale(rest, arrow):
        values = rest.array.cast(arrow)
    else:
        texts = [
            None if text is None else _fill_scale(text, arrow) for text in rest.array.to_pylist()
        ]
        values = pa.array(texts, pa.string()).cast(arrow)
    return TypedColumn(values, pa.array(special) if special.any() else None)


def _fills_the_scale(column: TextColumn, arrow: pa.DataType) -> bool:
    """Whether every text has exactly the type's scale and no more digits than Arrow can read.

    Only then is Arrow's cast to be trusted: with more digits than 38 (76) it wraps around
    instead of failing, and rescaling can wrap as well. It still checks the precision.
    """
    data = column.data
    if not data.size or data.max() > _NINE or data.min() < _MINUS:
        return False
    starts, ends = column.starts, column.ends
    lengths = ends - starts
    fraction = arrow.scale + 1 if arrow.scale else 0
    if lengths.min() <= fraction:
        return False
    if arrow.scale and not (data[ends - fraction] == _DOT).all():
        return False
    readable = 38 if arrow.bit_width == 128 else 76
    if lengths.max() - bool(fraction) <= readable:
        return True
    negative = data[starts] == _MINUS
    first_digit = data[starts + (negative & (lengths > 1))]
    digits = lengths - negative - bool(fraction) - (first_digit == _ZERO)
    return bool(digits.max() <= readable)


def _fill_scale(text: str, arrow: pa.DataType) -> str:
    """The same number with exactly the type's scale. Postgres writes it so by itself."""
    match = _DECIMAL.fullmatch(text)
    if match is None:
        raise MalformedTextError("expected digits with an optional minus and one decimal point")
    whole, fraction = match[2].lstrip("0"), (match[3] or "").rstrip("0")
    if len(fraction) > arrow.scale or len(whole) > arrow.precision - arrow.scale:
        raise MalformedTextError(
            f"does not fit into {arrow.precision} digits, {arrow.scale} of them decimal"
        )
    filled = f"{match[1]}{whole or '0'}"
    return f"{filled}.{fraction.ljust(arrow.scale, '0')}" if arrow.scale else filled
