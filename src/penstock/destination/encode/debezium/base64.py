"""Base64 of whole columns: of bytes, and of integers as Java writes them."""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.decode.row_values import Ints
from penstock.destination.encode.json_values import TEXT

Bytes = npt.NDArray[np.uint8]

_STANDARD = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_URL_SAFE = _STANDARD[:-2] + b"-_"
_PADDING = ord("=")


def base64_of_binary(values: pa.Array, *, url_safe: bool = False) -> pa.Array:
    """Base64 of a binary column; null where it is null."""
    _, offset_buffer, data_buffer = values.buffers()
    bounds = np.frombuffer(offset_buffer, np.int32, len(values) + 1, values.offset * 4)
    first, last = int(bounds[0]), int(bounds[-1])
    data = np.zeros(0, np.uint8)
    if data_buffer is not None:
        data = np.frombuffer(data_buffer, np.uint8, last - first, first)
    texts = _texts(data, (bounds - first).astype(np.int64), url_safe)
    return _nulls_of(values, texts)


def base64_of_decimals(values: pa.Array) -> pa.Array:
    """Base64 of the digits of a decimal128 column, as an integer: big-endian two's complement in
    as few bytes as it takes. Null where it is null.
    """
    count = len(values)
    buffer = values.buffers()[1]
    words = np.frombuffer(buffer, np.int64, 2 * count, values.offset * 16).reshape(count, 2)
    low, high = words[:, 0], words[:, 1]
    if values.null_count:
        valid = values.is_valid().to_numpy(zero_copy_only=False)
        low, high = np.where(valid, low, 0), np.where(valid, high, 0)
    return _nulls_of(values, _texts(*_two_complement(low, high), url_safe=False))


def _two_complement(low: Ints, high: Ints) -> tuple[Bytes, Ints]:
    """The bytes of all integers behind each other, and where each begins."""
    if (high == low >> 63).all():
        words = low[:, np.newaxis]
        lengths = _byte_lengths(low)
    else:
        words = np.stack([high, low], axis=1)
        of_high = _byte_lengths(high) + 8
        # Eight bytes are enough only where the upper word repeats the sign of the lower one.
        lengths = np.where(high == low >> 63, _byte_lengths(low), of_high)
    whole = np.ascontiguousarray(words.astype(">i8")).view(np.uint8).reshape(len(low), -1)
    offsets = np.zeros(len(low) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    width = whole.shape[1]
    longest = int(lengths.max(initial=1))
    kept = np.arange(longest, 0, -1) <= lengths[:, np.newaxis]
    return whole[:, width - longest :][kept], offsets


def _byte_lengths(numbers: Ints) -> Ints:
    magnitude = numbers ^ (numbers >> 63)
    lengths = np.ones(len(numbers), np.int64)
    highest = int(magnitude.max(initial=0))
    for bits in range(7, 63, 8):
        if highest >> bits == 0:
            break
        lengths += magnitude >> bits != 0
    return lengths


def _texts(data: Bytes, offsets: Ints, url_safe: bool) -> pa.Array:
    lengths = np.diff(offsets)
    groups = (lengths + 2) // 3
    starts = np.zeros(len(offsets), np.int64)
    np.cumsum(groups, out=starts[1:])
    total = int(starts[-1])
    padded = np.zeros(total * 3, np.uint8)
    if len(data) == total * 3:
        padded[:] = data
    else:
        shift = starts[:-1] * 3 - offsets[:-1]
        padded[np.arange(len(data)) + np.repeat(shift, lengths)] = data
    triples = padded.reshape(-1, 3)
    number = triples[:, 0].astype(np.uint32) << 16
    number |= triples[:, 1].astype(np.uint32) << 8
    number |= triples[:, 2]
    pairs = _pairs(url_safe)
    characters = np.empty((total, 2), np.uint16)
    characters[:, 0] = pairs[number >> 12]
    characters[:, 1] = pairs[number & 0xFFF]
    text = characters.view(np.uint8).reshape(-1)
    ends = starts[1:] * 4
    rest = lengths % 3
    text[ends[rest > 0] - 1] = _PADDING
    text[ends[rest == 1] - 2] = _PADDING
    return pa.Array.from_buffers(
        TEXT, len(lengths), [None, pa.py_buffer(starts * 4), pa.py_buffer(text)]
    )


@cache
def _pairs(url_safe: bool) -> npt.NDArray[np.uint16]:
    """Twelve bits -> two characters."""
    alphabet = np.frombuffer(_URL_SAFE if url_safe else _STANDARD, np.uint8)
    number = np.arange(4096)
    characters = np.stack([alphabet[number >> 6], alphabet[number & 63]], axis=1)
    return np.ascontiguousarray(characters).view(np.uint16).reshape(-1)


def _nulls_of(values: pa.Array, texts: pa.Array) -> pa.Array:
    if not values.null_count:
        return texts
    valid = np.packbits(values.is_valid().to_numpy(zero_copy_only=False), bitorder="little")
    return pa.Array.from_buffers(TEXT, len(texts), [pa.py_buffer(valid), *texts.buffers()[1:]])
