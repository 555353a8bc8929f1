"""Arrays of Postgres as arrays of JSON: their elements are written all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.types.array_text import ArrayText, split_array
from penstock.decode.types.arrays import decode_array
from penstock.decode.types.text_column import TextColumn, TypedColumn
from penstock.destination.encode.json_values import TEXT, join, json_strings

Tokens = Callable[[pa.Array], pa.Array]
"""Texts of elements as JSON, ``null`` where one is null."""


def json_arrays(text: pa.Array, tokens: Tokens) -> pa.Array:
    """Null where a text is. Lower bounds are lost; more dimensions are lists of lists."""
    if text.null_count == len(text):
        return pa.nulls(len(text), TEXT)
    lists = decode_array(TextColumn(text), pa.list_(pa.string()), TypedColumn, ",")
    written = _plain(lists.values, tokens)
    others = lists.unrepresentable
    if others is None:
        return written
    return pc.replace_with_mask(written, others, _others(text.filter(others), tokens))


def json_texts(lists: pa.ListArray) -> pa.Array:
    """Lists of texts as arrays of JSON strings; null where a list is."""
    return _plain(lists, json_strings)


def _plain(lists: pa.ListArray, tokens: Tokens) -> pa.Array:
    """Arrays of one dimension, all at once."""
    found = tokens(lists.flatten()).cast(TEXT)
    lengths = np.asarray(pc.list_value_length(lists).fill_null(0))
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
    rows = pa.LargeListArray.from_arrays(pa.array(ends), found)
    written = join("[", pc.binary_join(rows, pa.scalar(",", TEXT)), "]")
    if not lists.null_count:
        return written
    return pc.if_else(lists.is_valid(), written, pa.scalar(None, TEXT))


def _others(text: pa.Array, tokens: Tokens) -> pa.Array:
    """Arrays of other shapes, one by one; their elements at once."""
    arrays = [split_array(value) for value in text.to_pylist()]
    elements = [element for array in arrays for element in array.elements]
    found = iter(tokens(pa.array(elements, pa.string())).to_pylist())
    return pa.array([_nested(array, found) for array in arrays], TEXT)


def _nested(array: ArrayText, tokens: Iterator[str]) -> str:
    rows = [next(tokens) for _ in array.elements]
    for length in reversed(array.dimensions[1:]):
        rows = [f"[{','.join(rows[at : at + length])}]" for at in range(0, len(rows), length)]
    return f"[{','.join(rows)}]"
