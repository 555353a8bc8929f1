"""Where the values stand in many row messages at once.

One NumPy pass a column over all rows: a row's columns have no fixed width, so column j + 1 of
every row is found from column j of every row. Nothing is copied; the result is offsets.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from penstock.model.errors import DecodeError

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]

NULL, UNSET, TEXT, BINARY = (ord(kind) for kind in "nutb")
KEY_TUPLE, FULL_TUPLE, NEW_TUPLE = (ord(marker) for marker in "KON")
INSERT, UPDATE, DELETE = (ord(op) for op in "IUD")
ROW_OPS = {INSERT: "insert", UPDATE: "update", DELETE: "delete"}
"""What people call them."""

# Reads look up to this many bytes past a position before they check it.
PADDING = 8


@dataclass(frozen=True)
class Tuples:
    """The columns of n tuples: for column j and row i, ``kind[j, i]``, and where the bytes are."""

    kind: Bytes
    start: Ints
    length: Ints

    @property
    def rows(self) -> int:
        return int(self.kind.shape[1])


@dataclass(frozen=True)
class RowTuples:
    """The new and old tuples of row messages; ``new_rows``/``old_rows`` say whose they are."""

    new: Tuples
    new_rows: Ints
    old: Tuples
    old_rows: Ints
    old_is_full: npt.NDArray[np.bool_]


def pad(*pieces: bytes | memoryview) -> Bytes:
    """All pieces as one array, with room for reads that start at its very end."""
    array = np.empty(sum(map(len, pieces)) + PADDING, np.uint8)
    at = 0
    for piece in pieces:
        array[at : at + len(piece)] = np.frombuffer(piece, np.uint8)
        at += len(piece)
    array[at:] = 0
    return array


def big_endian(data: Bytes, at: Ints, size: int) -> Ints:
    """The unsigned big-endian integers of ``size`` bytes that start at ``at``."""
    count = max(len(data) - size + 1, 0)
    window: npt.NDArray[np.generic] = np.ndarray((count,), f">u{size}", data, strides=(1,))
    return window[at].astype(np.int64)


def split_rows(data: Bytes, op: Bytes, start: Ints, end: Ints, columns: int) -> RowTuples:
    """Find the tuples of Insert, Update and Delete messages of tables with ``columns`` columns.

    ``data`` is padded (see ``pad``); message i fills ``data[start[i]:end[i]]`` and ``op[i]`` is its
    first byte. Raises DecodeError unless every message is exactly one well-formed message.
    """
    marker_at = start + 5
    _check(marker_at + 3 <= end, "ends before its tuple", start)
    marker = data[marker_at]
    has_old = (marker == KEY_TUPLE) | (marker == FULL_TUPLE)
    is_new = marker == NEW_TUPLE
    allowed = np.where(
        op == INSERT, is_new, np.where(op == DELETE, has_old, (op == UPDATE) & (is_new | has_old))
    )
    _check(allowed, "has a tuple of the wrong kind", start)

    old_rows = np.flatnonzero(has_old)
    old, after_old = _walk(data, marker_at[old_rows] + 1, end[old_rows], columns)

    new_at = marker_at.copy()
    new_at[old_rows] = after_old
    needs_new = op != DELETE
    _check(needs_new | (new_at == end), "has bytes after its tuple", start)
    new_rows = np.flatnonzero(needs_new)
    new_at, new_end = new_at[new_rows], end[new_rows]
    _check(new_at + 3 <= new_end, "ends before its new tuple", start[new_rows])
    _check(data[new_at] == NEW_TUPLE, "has no new tuple", start[new_rows])
    new, after_new = _walk(data, new_at + 1, new_end, columns)
    _check(after_new == new_end, "has bytes after its tuple", start[new_rows])
    return RowTuples(new, new_rows, old, old_rows, marker[old_rows] == FULL_TUPLE)


def _walk(data: Bytes, at: Ints, end: Ints, columns: int) -> tuple[Tuples, Ints]:
    """Step through the tuples whose column count stands at ``at``; also return where each ends."""
    rows = len(at)
    kind = np.empty((columns, rows), np.uint8)
    start = np.empty((columns, rows), np.int64)
    length = np.empty((columns, rows), np.int64)
    if rows:
        _check(at + 2 <= end, "ends before its column count", at)
        _check(
            big_endian(data, at, 2) == columns,
            f"has another number of columns than the {columns} of its table",
            at,
        )
    position = at + 2
    for column in range(columns):
        _check(position < end, "ends before its last column", at)
        kinds = data[position]
        has_bytes = (kinds == TEXT) | (kinds == BINARY)
        if has_bytes.all():
            _check(position + 5 <= end, "ends inside a length", at)
            sizes = big_endian(data, position + 1, 4)
            begins = position + 5
        else:
            _check(has_bytes | (kinds == NULL) | (kinds == UNSET), "has an unknown value kind", at)
            _check(~has_bytes | (position + 5 <= end), "ends inside a length", at)
            # Rows without bytes may stand at the very end; read their length from a safe place.
            safe = np.where(has_bytes, position + 1, 0)
            sizes = np.where(has_bytes, big_endian(data, safe, 4), 0)
            begins = np.where(has_bytes, position + 5, position + 1)
        position = begins + sizes
        _check(position <= end, "names more bytes than it has", at)
        kind[column] = kinds
        start[column] = begins
        length[column] = sizes
    return Tuples(kind, start, length), position


def _check(holds: npt.NDArray[np.bool_], what: str, at: Ints) -> None:
    if not holds.all():
        first = int(np.flatnonzero(~holds)[0])
        raise DecodeError(f"the row message at byte {int(at[first])} of its segment {what}")
