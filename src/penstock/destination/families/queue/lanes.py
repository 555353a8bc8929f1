"""Lanes: which changes have to keep their order among each other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def hash_texts(texts: pa.Array) -> Hashes:
    """A hash of each text, of 64 bits; of null, that of no bytes. The same wherever it is made:
    positions that are stored lane by lane depend on it.

    Each byte is multiplied by a number that its place in the text gives, and the sum is mixed.
    """
    texts = texts.cast(pa.large_binary())
    bounds = np.frombuffer(texts.buffers()[1], np.int64)[
        texts.offset : texts.offset + len(texts) + 1
    ]
    lengths = np.diff(bounds)
    if texts.null_count:
        # What stands behind a null does not count.
        lengths = np.where(np.asarray(texts.is_null()), 0, lengths)
    hashes = lengths.astype(np.uint64)
    raw = texts.buffers()[2]
    total = int(lengths.sum())
    if raw is not None and total:
        data = np.frombuffer(raw, np.uint8)[int(bounds[0]) : int(bounds[-1])]
        if total != len(data):
            keep = np.repeat(lengths > 0, np.diff(bounds))
            data = data[keep]
        starts = np.cumsum(lengths) - lengths
        place = np.arange(total, dtype=np.uint64) - np.repeat(starts, lengths).astype(np.uint64)
        filled = lengths > 0
        weighed = (data.astype(np.uint64) + np.uint64(1)) * (mixed(place) | np.uint64(1))
        hashes[filled] += np.add.reduceat(weighed, starts[filled])
    return mixed(hashes)


def mixed(numbers: Hashes) -> Hashes:
    """Every bit of each number in every bit of the result (the finaliser of splitmix64)."""
    mixed = numbers + _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _MIX_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _MIX_2
    return mixed ^ (mixed >> np.uint64(31))
