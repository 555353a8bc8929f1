"""Row images in pgoutput's bytes as lines of COPY's text format, all columns at once.

What stands between two values there becomes what COPY wants between them. Nothing is made of each
column by itself, so that only rows without anything to escape can be told this way.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from penstock.pgoutput.tuples import NULL, TEXT, Bytes, Tuples

_TAB, _NEWLINE, _BACKSLASH = b"\t\n\\"
_NULLS = np.frombuffer(b"\\N\t\\N\n", np.uint8)
_NULL_BYTES = 3
# All that COPY has a meaning for is below it, but for the backslash.
_LEAST_PLAIN = 0x0E
# Between the rows of a table stand those of others: with so many bytes for one of its own, columns
# are quicker.
_SPARSE = 2


def plain_lines(data: Bytes, images: Tuples) -> pa.Array | None:
    """One line, its end included, for each image; None where a value has to be escaped, was not
    sent, or is not valid. ``data`` is padded (see ``pad``).
    """
    columns, rows = images.kind.shape
    count = columns * rows
    is_null = images.kind.T == NULL
    if not count or not (is_null | (images.kind.T == TEXT)).all():
        return None
    start, length = images.start.T, images.length.T
    first = int(start.min())
    last = int((start + length).max()) + 1
    used = int(length.sum()) + 5 * count
    if last - first > _SPARSE * used or last - first + len(_NULLS) > np.iinfo(np.int32).max:
        return None
    bytes_ = np.concatenate([data[first:last], _NULLS])
    begins = start - first
    ends = begins + length
    bytes_[ends[:, :-1]] = _TAB
    bytes_[ends[:, -1]] = _NEWLINE
    # Pieces that are alternately not ours and ours; behind them COPY's null, within and at the end.
    offsets = np.zeros(2 * count + 4, np.int32)
    offsets[1 : 2 * count : 2] = begins.ravel()
    offsets[2 : 2 * count + 1 : 2] = ends.ravel() + 1
    offsets[-3:] = len(bytes_) - len(_NULLS) + np.arange(3) * _NULL_BYTES
    pieces = pa.Array.from_buffers(
        pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), pa.py_buffer(bytes_)]
    )
    which = np.arange(1, 2 * count, 2).reshape(rows, columns)
    nulls = int(np.count_nonzero(is_null))
    if nulls:
        which[is_null] = 2 * count + 1
        which[is_null[:, -1], -1] = 2 * count + 2
    found = pieces.take(pa.array(which.ravel()))
    bounds = np.frombuffer(found.buffers()[1], np.int32)[: count + 1 : columns].copy()
    text = np.frombuffer(found.buffers()[2], np.uint8)[: bounds[-1]]
    if np.count_nonzero(text < _LEAST_PLAIN) != count:
        return None
    if np.count_nonzero(text == _BACKSLASH) != nulls:
        return None
    lines = pa.Array.from_buffers(
        pa.string(), rows, [None, pa.py_buffer(bounds), found.buffers()[2]]
    )
    try:
        lines.validate(full=True)
    except pa.ArrowInvalid:
        return None  # who looks at the columns finds out which
    return lines
