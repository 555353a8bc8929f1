"""Arrow text columns as the text format of COPY, without a loop over rows, and back."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.text_bytes import text_bytes

NULL = "\\N"

# A backslash first: the others bring new ones along.
_ESCAPES = (("\\", "\\\\"), ("\t", "\\t"), ("\n", "\\n"), ("\r", "\\r"))

_ESCAPED = re.compile(r"\\(.)")
_MEANT = {escaped[1]: plain for plain, escaped in _ESCAPES}

Column = Any
"""A text column, or one text (already escaped) for all rows."""


def copy_lines(columns: Sequence[Column], count: int) -> pa.Array:
    """One line of COPY text, its end included, for each of ``count`` rows."""
    if not columns:
        return pa.repeat(pa.scalar("\n", pa.large_string()), count)
    parts: list[object] = []
    for column in columns:
        if isinstance(column, str):
            parts.append(pa.scalar(column, pa.large_string()))
        else:
            # Large offsets: the lines of many wide rows pass 2 GiB sooner than their columns.
            parts.append(escape(column).cast(pa.large_string()))
        parts.append(pa.scalar("\t", pa.large_string()))
    parts[-1] = pa.scalar("\n", pa.large_string())
    if all(isinstance(column, str) for column in columns):
        parts[0] = pa.repeat(parts[0], count)
    return pc.binary_join_element_wise(*parts, pa.scalar("", pa.large_string()))


def escape(column: pa.Array) -> pa.Array:
    """The column with everything that COPY takes for its own escaped, and nulls as COPY's."""
    # Most columns have none of them, and a search through the bytes is quick.
    text = bytes(text_bytes(column))
    for plain, escaped in _ESCAPES:
        if plain.encode() in text:
            column = pc.replace_substring(column, plain, escaped)
    return column.fill_null(NULL) if column.null_count else column


def split_lines(lines: bytes, count: int) -> list[pa.Array]:
    """The ``count`` columns, at least one, of what ``copy_lines`` has made of text columns.

    Row by row: for lines that are looked at again after something went wrong.
    """
    rows = [line.split("\t") for line in lines.decode().split("\n")[:-1]]
    return [pa.array([_plain(row[place]) for row in rows], pa.string()) for place in range(count)]


def _plain(text: str) -> str | None:
    if text == NULL:
        return None
    return _ESCAPED.sub(lambda found: _MEANT[found[1]], text) if "\\" in text else text
