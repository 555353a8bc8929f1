"""Columns of arrays: all rows are split into elements at once, by arithmetic on their bytes.

Quoted stretches follow from the parity of unescaped quotes, escapes from the parity inside runs
of backslashes. Rows with other dimensions or bounds than a list has are checked one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.decode.types.array_text import split_array
from penstock.decode.types.text_column import (
    Bytes,
    MalformedTextError,
    Mask,
    TextColumn,
    TypedColumn,
)

_OPEN, _CLOSE, _BRACKET, _QUOTE, _BACKSLASH, _SPACE, _LOWER_N = b'{}["\\ n'
_SPACES = np.zeros(256, np.bool_)
_SPACES[list(b" \t\n\v\f\r")] = True
_NULL = np.frombuffer(b"NULL", np.uint8)

Indexes = npt.NDArray[np.intp]
ElementDecoder = Callable[[pa.Array], TypedColumn]


@dataclass(frozen=True)
class _Elements:
    """The elements of all rows, in order."""

    texts: pa.Array
    row_ends: Indexes  # by valid row: how many elements it and all rows before it have


def decode_array(
    column: TextColumn, arrow: pa.ListType, decode_elements: ElementDecoder, delimiter: str
) -> TypedColumn:
    """Arrays of one dimension with lower bound 1 are lists; all others are unrepresentable.

    So are arrays with an element that is unrepresentable itself.
    """
    starts, ends = column.starts, column.ends
    if (ends - starts).min() < 2:
        raise MalformedTextError("the array has no braces")
    opening, second = column.data[starts], column.data[starts + 1]
    other_shape = (opening == _BRACKET) | (second == _OPEN)
    if other_shape.any():
        others = column.spread(other_shape)
        return _with_other_shapes(column, others, arrow, decode_elements, delimiter)
    if not (opening == _OPEN).all() or not (column.data[ends - 1] == _CLOSE).all():
        raise MalformedTextError("the array has no braces around it")
    # Without a quote or an escape anywhere, braces and delimiters decide alone.
    if (column.data == _QUOTE).any() or (column.data == _BACKSLASH).any():
        elements = _split_quoted(column, ord(delimiter))
    else:
        elements = _split_bare(column, ord(delimiter))
    return _lists(column, elements, arrow, decode_elements)


def _with_other_shapes(
    column: TextColumn,
    others: Mask,
    arrow: pa.ListType,
    decode_elements: ElementDecoder,
    delimiter: str,
) -> TypedColumn:
    elements: list[str | None] = []
    for text in column.array.filter(pa.array(others)).to_pylist():
        elements += split_array(text, delimiter).elements
    decode_elements(pa.array(elements, pa.string()))  # only to refuse what is no value
    rest = TextColumn(column.where(~others))
    if rest.array.null_count == rest.size:
        return TypedColumn(pa.nulls(column.size, arrow), pa.array(others))
    lists = decode_array(rest, arrow, decode_elements, delimiter)
    if lists.unrepresentable is not None:
        others = others | lists.unrepresentable.to_numpy(zero_copy_only=False)
    return TypedColumn(lists.values, pa.array(others))


def _split_bare(column: TextColumn, delimiter: int) -> _Elements:
    data = column.data
    opening, closing = data == _OPEN, data == _CLOSE
    ends_element = closing | (data == delimiter)
    _check_braces(column, opening, closing)
    if data.min() <= _SPACE and _SPACES[data].any():
        raise MalformedTextError("the array has a space that Postgres would have quoted")
    ends = np.flatnonzero(ends_element)
    starts = _starts(data, ends)
    lengths = ends - starts
    nulls = _find_nulls(data, starts, lengths)
    if nulls.size:
        keep = ~(ends_element | opening)
        keep[starts[nulls][:, np.newaxis] + np.arange(4)] = False
        content = pa.py_buffer(data[keep])
    else:
        content = pa.py_buffer(data.tobytes().translate(None, bytes((_OPEN, _CLOSE, delimiter))))
    present = _present(column, lengths)
    lengths[nulls] = 0
    return _elements(data, ends, lengths=lengths, nulls=nulls, present=present, content=content)


def _split_quoted(column: TextColumn, delimiter: int) -> _Elements:
    data = column.data
    backslashes = np.flatnonzero(data == _BACKSLASH)
    escapes = _escapes(backslashes)
    quotes = data == _QUOTE
    quotes[escapes + 1] = False  # never past the end, which is a brace
    inside = np.bitwise_xor.accumulate(quotes.view(np.uint8)).view(np.bool_)
    if inside[column.ends - 1].any() or not inside[backslashes].all():
        raise MalformedTextError("the array's quotes do not match")
    outside = ~inside
    opening, closing = (data == _OPEN) & outside, (data == _CLOSE) & outside
    ends_element = closing | ((data == delimiter) & outside)
    _check_braces(column, opening, closing)
    marks = np.flatnonzero(quotes)
    before, after = marks[0::2] - 1, marks[1::2] + 1
    if not (opening | ends_element)[before].all() or not ends_element[after].all():
        raise MalformedTextError("the array has an element that is quoted in part")
    if (_SPACES[data] & outside).any():
        raise MalformedTextError("the array has a space that Postgres would have quoted")
    ends = np.flatnonzero(ends_element)
    starts = _starts(data, ends)
    lengths = ends - starts
    nulls = _find_nulls(data, starts, lengths)
    keep = ~(ends_element | opening | quotes)
    keep[escapes] = False
    keep[starts[nulls][:, np.newaxis] + np.arange(4)] = False
    present = _present(column, lengths)
    lengths -= 2 * (data[starts] == _QUOTE)
    if escapes.size:
        lengths -= np.bincount(np.searchsorted(ends, escapes), minlength=ends.size)
    lengths[nulls] = 0
    content = pa.py_buffer(data[keep])
    return _elements(data, ends, lengths=lengths, nulls=nulls, present=present, content=content)


def _escapes(backslashes: Indexes) -> Indexes:
    """The backslashes that escape the next byte: every second one of a run, from its first."""
    if not backslashes.size:
        return backslashes
    order = np.arange(backslashes.size)
    begins_run = np.ones(backslashes.size, np.bool_)
    begins_run[1:] = backslashes[1:] - backslashes[:-1] != 1
    run_start = np.maximum.accumulate(np.where(begins_run, order, 0))
    escapes: Indexes = backslashes[(order - run_start) % 2 == 0]
    return escapes


def _check_braces(column: TextColumn, opening: Mask, closing: Mask) -> None:
    """Each row begins and ends with its braces: as many as rows means there are no others."""
    rows = column.starts.size
    if np.count_nonzero(opening) != rows or np.count_nonzero(closing) != rows:
        raise MalformedTextError("the array has a brace out of place")


def _starts(data: Bytes, ends: Indexes) -> Indexes:
    """An element starts behind the one before it, and behind the brace if it is a row's first."""
    starts = np.empty_like(ends)
    starts[0] = 1
    starts[1:] = ends[:-1] + 1 + (data[ends[:-1]] == _CLOSE)
    return starts


def _find_nulls(data: Bytes, starts: Indexes, lengths: Indexes) -> Indexes:
    """Which elements are NULL without quotes."""
    candidates = np.flatnonzero(lengths == 4)
    if candidates.size:
        candidates = candidates[data[starts[candidates]] | 0x20 == _LOWER_N]
    if candidates.size:
        words = data[starts[candidates][:, np.newaxis] + np.arange(4)]
        null = (words == _NULL).all(axis=1)
        if not null.all() and ((words | 0x20) == (_NULL | 0x20)).all(axis=1)[~null].any():
            raise MalformedTextError("the array has an element that Postgres would have quoted")
        candidates = candidates[null]
    return candidates


def _present(column: TextColumn, lengths: Indexes) -> Mask | None:
    """Which elements are there: in {} there is one of no bytes that is not. None means all."""
    absent = lengths == 0
    if np.count_nonzero(absent) != np.count_nonzero(column.ends - column.starts == 2):
        raise MalformedTextError("the array has an element without a value")
    return ~absent if absent.any() else None


def _elements(
    data: Bytes,
    ends: Indexes,
    *,
    lengths: Indexes,
    nulls: Indexes,
    present: Mask | None,
    content: pa.Buffer,
) -> _Elements:
    row_ends: Indexes = np.flatnonzero(data[ends] == _CLOSE)
    valid: Mask | None = None
    if nulls.size:
        valid = np.ones(lengths.size, np.bool_)
        valid[nulls] = False
    if present is None:
        row_ends += 1
    else:
        row_ends = np.cumsum(present, dtype=np.intp)[row_ends]
        lengths = lengths[present]
        valid = None if valid is None else valid[present]
    offsets = np.zeros(lengths.size + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    validity = None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
    buffers = [validity, pa.py_buffer(offsets), content]
    return _Elements(pa.Array.from_buffers(pa.string(), lengths.size, buffers), row_ends)


def _lists(
    column: TextColumn, elements: _Elements, arrow: pa.ListType, decode_elements: ElementDecoder
) -> TypedColumn:
    offsets = np.zeros(column.size + 1, np.int32)
    if column.valid is None:
        offsets[1:] = elements.row_ends
    else:
        counts = elements.row_ends.copy()
        counts[1:] -= elements.row_ends[:-1]
        np.cumsum(column.spread(counts), out=offsets[1:])
    typed = decode_elements(elements.texts)
    holes = None
    if typed.unrepresentable is not None:
        lost = np.zeros(len(elements.texts) + 1, np.int32)
        np.cumsum(typed.unrepresentable.to_numpy(zero_copy_only=False), out=lost[1:])
        holes = np.diff(lost[offsets]) > 0
    buffers = [column.validity(holes), pa.py_buffer(offsets)]
    lists = pa.Array.from_buffers(arrow, column.size, buffers, children=[typed.values])
    return TypedColumn(lists, None if holes is None else pa.array(holes))
