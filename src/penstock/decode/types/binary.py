"""bytea in hex format, and uuid: pairs of hexadecimal digits, read through one table."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.decode.types.text_column import MalformedTextError, TextColumn, TypedColumn

UUID = pa.binary(16)
_PREFIX, _NOT_HEX = 256, 257
_HYPHENS = (8, 13, 18, 23)
_UUID_DIGITS = ((0, 8), (9, 13), (14, 18), (19, 23), (24, 36))


def _pair_table() -> npt.NDArray[np.uint16]:
    """Two characters as a native 16-bit number -> their byte, ``\\x``, or not hexadecimal."""
    pairs = np.arange(65536, dtype=np.uint16).view(np.uint8).reshape(-1, 2)
    digit = np.full(256, 255, np.uint16)
    digit[np.frombuffer(b"0123456789abcdef", np.uint8)] = np.arange(16)
    high, low = digit[pairs[:, 0]], digit[pairs[:, 1]]
    table = np.where((high == 255) | (low == 255), np.uint16(_NOT_HEX), high * 16 + low)
    table[np.frombuffer(b"\\x", np.uint16)] = _PREFIX
    return table.astype(np.uint16)


_PAIRS = _pair_table()


def decode_bytea(column: TextColumn) -> TypedColumn:
    starts = column.starts
    # Rows of even length leave the pairs of the whole column aligned.
    if (starts & 1).any() or column.data.size & 1:
        raise MalformedTextError("expected \\x and pairs of lower-case hexadecimal digits")
    codes = _PAIRS[column.data.view(np.uint16)]
    prefix = codes == _PREFIX
    rows = starts.size
    if (
        not (column.ends > starts).all()
        or not prefix[starts >> 1].all()
        or np.count_nonzero(prefix) != rows
        or codes.max() > _PREFIX
    ):
        raise MalformedTextError("expected \\x and pairs of lower-case hexadecimal digits")
    prefixes = np.zeros(column.size + 1, np.int32)
    if column.valid is None:
        prefixes[1:] = np.arange(1, column.size + 1)
    else:
        np.cumsum(column.valid, out=prefixes[1:])
    offsets = (column.offsets >> 1) - prefixes
    values = codes[~prefix].astype(np.uint8)
    buffers = [column.validity(), pa.py_buffer(offsets), pa.py_buffer(values)]
    return TypedColumn(pa.Array.from_buffers(pa.binary(), column.size, buffers))


def decode_uuid(column: TextColumn) -> TypedColumn:
    rows = column.starts.size
    if column.data.size != rows * 36 or not ((column.ends - column.starts) == 36).all():
        raise MalformedTextError("expected 8-4-4-4-12 lower-case hexadecimal digits")
    texts = column.data.reshape(rows, 36)
    digits = np.concatenate([texts[:, a:b] for a, b in _UUID_DIGITS], axis=1)
    codes = _PAIRS[digits.view(np.uint16)]
    if codes.max() > 255 or not (texts[:, _HYPHENS] == ord("-")).all():
        raise MalformedTextError("expected 8-4-4-4-12 lower-case hexadecimal digits")
    return column.typed(UUID, column.spread(codes.astype(np.uint8)))
