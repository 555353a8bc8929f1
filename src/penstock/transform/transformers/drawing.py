"""Numbers, letters and words out of drawn bits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.transform.transformers.draws import Bytes, Drawn

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_GOLDEN = 0x9E3779B97F4A7C15


def spread(drawn: Drawn, number: int) -> npt.NDArray[np.uint64]:
    """64 bits for each value, others for each ``number``."""
    if number < 2:
        return drawn[:, number]
    # The finalizer of splitmix64: what came is unpredictable, so is what is made of it.
    bits = (drawn[:, 0] + np.uint64(_GOLDEN * number % 2**64)) ^ drawn[:, 1]
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def below(drawn: Drawn, limit: int, number: int = 0) -> Ints:
    """Numbers from 0 up to ``limit``, which is not among them."""
    return (spread(drawn, number) % np.uint64(limit)).astype(np.int64)


def between(drawn: Drawn, low: int, high: int, number: int = 0) -> Ints:
    """Numbers from ``low`` up to and with ``high``; both fit in 64 bits."""
    width = high - low + 1
    if width >= 2**64:
        return spread(drawn, number).view(np.int64)
    # Sums wrap as they should: two's complement.
    found = spread(drawn, number) % np.uint64(width) + np.uint64(low % 2**64)
    return found.view(np.int64)


def fractions(drawn: Drawn, number: int = 0) -> Floats:
    """Floats from 0 up to 1, which is not among them."""
    return (spread(drawn, number) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def words(drawn: Drawn, vocabulary: pa.Array, number: int = 0) -> pa.Array:
    """A word for each value."""
    return vocabulary.take(pa.array(below(drawn, len(vocabulary), number)))


def letters(drawn: Drawn, alphabet: bytes, lengths: Ints) -> pa.Array:
    """Texts of these lengths over an ASCII alphabet of at most 256 letters."""
    longest = int(lengths.max(initial=0))
    known = np.frombuffer(alphabet, np.uint8)
    columns = np.empty((len(drawn), longest), np.uint8)
    for first in range(0, longest, 8):
        bits = spread(drawn, first // 8)
        size = min(8, longest - first)
        for place in range(size):
            part = (bits >> np.uint64(8 * place)) & np.uint64(255)
            columns[:, first + place] = known[part.astype(np.int64) * len(known) // 256]
    return texts_of(columns, lengths)


def texts_of(columns: Bytes, lengths: Ints) -> pa.Array:
    """Texts from rows of ASCII, of which so many bytes count."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if columns.shape[1] and (lengths == columns.shape[1]).all():
        data = np.ascontiguousarray(columns).reshape(-1)
    else:
        data = columns[np.arange(columns.shape[1]) < lengths[:, None]]
    return pa.LargeStringArray.from_buffers(
        len(lengths), pa.py_buffer(offsets), pa.py_buffer(data)
    ).cast(pa.string())


def hexadecimal(data: Bytes) -> pa.Array:
    """Rows of bytes as hexadecimal texts."""
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    both = np.empty((len(data), 2 * data.shape[1]), np.uint8)
    both[:, 0::2], both[:, 1::2] = digits[data >> 4], digits[data & 15]
    return texts_of(both, np.full(len(data), both.shape[1], np.int64))


def joined(*parts: pa.Array | str) -> pa.Array:
    """Columns and constant texts, one after another."""
    given = [pa.scalar(part) if isinstance(part, str) else part for part in parts]
    return pa.compute.binary_join_element_wise(*given, pa.scalar(""))


def as_texts(texts: Sequence[str | None]) -> pa.Array:
    return pa.array(texts, pa.string())
