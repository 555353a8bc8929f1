"""Rows as compressed CSV, a column at a time. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc

_LEVEL = 3
_GZIP = 31
_TEXT = pa.large_string()


def csv_lines(rows: pa.Table, null: str) -> bytes:
    """Every text is quoted, and ``null`` never is: so no text can be taken for it."""
    if not rows.num_rows:
        return b""
    fields = []
    for column in rows.combine_chunks().columns:
        values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
            text = pc.replace_substring(values.cast(_TEXT), '"', '""')
            quote, end = pa.scalar('"', _TEXT), pa.scalar("", _TEXT)
            values = pc.binary_join_element_wise(quote, text, quote, end)
        else:
            values = values.cast(_TEXT)
        fields.append(pc.fill_null(values, pa.scalar(null, _TEXT)))
    lines = pc.binary_join_element_wise(*fields, pa.scalar(",", _TEXT))
    listed = pa.LargeListArray.from_arrays(pa.array([0, len(lines)], pa.int64()), lines)
    joined: str = pc.binary_join(listed, pa.scalar("\n", _TEXT))[0].as_py()
    return (joined + "\n").encode()


def gzipped(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """One gzip stream; the same bytes give the same stream: it carries no time."""
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP)
    for piece in pieces:
        yield packer.compress(piece)
    yield packer.flush()
