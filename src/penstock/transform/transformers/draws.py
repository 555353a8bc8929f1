"""128 bits for each value: by AES under a key, so that nobody without it can tell which, or random.

Short texts take AES-CMAC (RFC 4493), all rows at a time. Long ones take keyed BLAKE2b, one by one.
Which one a text takes depends on its length alone, and each has a key of its own.
"""

from __future__ import annotations

import hashlib
import os
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Drawn = npt.NDArray[np.uint64]
"""Two numbers of 64 bits for each value."""
Bytes = npt.NDArray[np.uint8]

_BLOCK = 16
_LONGEST_BY_CMAC = 8 * _BLOCK


class Draws:
    """``key``: 16 bytes for AES, 32 for BLAKE2b; None for random ones. Can be pickled."""

    def __init__(self, key: bytes | None) -> None:
        self._key = key

    def __getstate__(self) -> dict[str, Any]:
        return {"_key": self._key}

    def of(self, values: pa.Array) -> Drawn:
        if self._key is None:
            return np.frombuffer(os.urandom(16 * len(values)), "<u8").reshape(-1, 2)
        data, starts, lengths = text_parts(values)
        drawn = np.empty((len(values), _BLOCK), np.uint8)
        short = lengths <= _LONGEST_BY_CMAC
        rows = np.flatnonzero(short)
        blocks = np.maximum((lengths[rows] + _BLOCK - 1) // _BLOCK, 1)
        for count in np.unique(blocks).tolist():
            some = rows[blocks == count]
            drawn[some] = self._cmac.of(data, starts[some], lengths[some], count)
        if not short.all():
            key = self._key[16:48]
            for row in np.flatnonzero(~short).tolist():
                text = data[starts[row] : starts[row] + lengths[row]].tobytes()
                digest = hashlib.blake2b(text, digest_size=_BLOCK, key=key).digest()
                drawn[row] = np.frombuffer(digest, np.uint8)
        return drawn.view("<u8")

    @cached_property
    def _cmac(self) -> Cmac:
        assert self._key is not None  # noqa: S101 (asked for with a key alone)
        return Cmac(self._key[:16])


class Ecb:
    """AES over whole blocks, each by itself: what other constructions are made of."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        # Each block is the input of a PRF or PRP by itself: nothing is enciphered "in ECB".
        self._cipher = Cipher(algorithms.AES(key), modes.ECB())  # noqa: S305

    def encrypt(self, blocks: Bytes) -> Bytes:
        done = self._cipher.encryptor().update(np.ascontiguousarray(blocks).data)
        return np.frombuffer(done, np.uint8).reshape(-1, _BLOCK)

    def decrypt(self, blocks: Bytes) -> Bytes:
        done = self._cipher.decryptor().update(np.ascontiguousarray(blocks).data)
        return np.frombuffer(done, np.uint8).reshape(-1, _BLOCK)


class Cmac:
    """AES-CMAC of many texts of the same number of blocks."""

    def __init__(self, key: bytes) -> None:
        self._aes = Ecb(key)
        zero = self._aes.encrypt(np.zeros((1, _BLOCK), np.uint8))[0].tobytes()
        first = _doubled(zero)
        self._whole = np.frombuffer(first, np.uint8)
        self._padded = np.frombuffer(_doubled(first), np.uint8)

    def of(
        self, data: Bytes, starts: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], count: int
    ) -> Bytes:
        """``data`` has ``count`` blocks more than the texts need."""
        width = count * _BLOCK
        # Rows of a view, each copied as a whole: an index of every byte would take longer.
        texts = np.lib.stride_tricks.sliding_window_view(data, width)[starts]
        # Only the last block can hold what is behind the text.
        last = texts[:, width - _BLOCK :]
        last *= np.arange(width - _BLOCK, width) < lengths[:, None]
        partial = np.flatnonzero(lengths < width)
        texts[partial, lengths[partial]] = 0x80
        last ^= np.where((lengths < width)[:, None], self._padded, self._whole)
        state = texts[:, :_BLOCK]
        for block in range(1, count):
            state = self._aes.encrypt(state) ^ texts[:, block * _BLOCK : (block + 1) * _BLOCK]
        return self._aes.encrypt(state)


def _doubled(block: bytes) -> bytes:
    number = int.from_bytes(block, "big") << 1
    if number >> 128:
        number ^= (1 << 128) | 0x87
    return number.to_bytes(_BLOCK, "big")


def text_parts(
    values: pa.Array,
) -> tuple[Bytes, npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The bytes of texts without nulls, padded, and where each begins and how long it is."""
    offsets = np.zeros(1, np.int64)
    if len(values):
        wide = np.int64 if pa.types.is_large_string(values.type) else np.int32
        given = np.frombuffer(values.buffers()[1], wide)
        offsets = given[values.offset : values.offset + len(values) + 1].astype(np.int64)
    base, top = int(offsets[0]), int(offsets[-1])
    raw = values.buffers()[2]
    data = np.zeros(top - base + _LONGEST_BY_CMAC + _BLOCK, np.uint8)
    if raw is not None and top > base:
        data[: top - base] = np.frombuffer(raw, np.uint8)[base:top]
    return data, offsets[:-1] - base, np.diff(offsets)
