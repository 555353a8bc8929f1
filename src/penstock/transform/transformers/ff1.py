"""FF1 of NIST SP 800-38G, all rows at a time: a permutation of numbers of so many digits.

The tweak is empty: a domain has a key of its own. Halves of up to 63 bits, so up to 36 decimal
digits. Domains of fewer than a million values are refused, as the standard demands.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from penstock.transform.transformers.draws import Bytes, Ecb

Numbers = npt.NDArray[np.uint64]

SMALLEST_DOMAIN: Final = 10**6
_ROUNDS: Final = 10


def is_large_enough(radix: int, digits: int) -> bool:
    return bool(radix**digits >= SMALLEST_DOMAIN)


def longest(radix: int) -> int:
    """How many digits a number may have."""
    half = 1
    while radix ** (half + 1) < 2**63:
        half += 1
    return 2 * half


class Ff1:
    """FF1 over ``digits`` digits of a radix. A number comes as its halves, of ``left`` and
    ``right`` digits.
    """

    def __init__(self, key: bytes, radix: int, digits: int) -> None:
        if not is_large_enough(radix, digits) or digits > longest(radix):
            raise ValueError(f"FF1 does not take {digits} digits of radix {radix}")
        self.left = digits // 2
        self.right = digits - self.left
        self._aes = Ecb(key)
        self._moduli = (radix**self.left, radix**self.right)
        # The bytes that a half takes, and how many of what AES gives are used.
        self._bytes = ((radix**self.right - 1).bit_length() + 7) // 8
        self._used = 4 * ((self._bytes + 3) // 4) + 4
        first = bytes((1, 2, 1)) + radix.to_bytes(3, "big") + bytes((_ROUNDS, self.left % 256))
        first += digits.to_bytes(4, "big") + bytes(4)
        self._first = self._aes.encrypt(np.frombuffer(first, np.uint8).reshape(1, 16))[0]

    def encrypt(self, left: Numbers, right: Numbers) -> tuple[Numbers, Numbers]:
        for number in range(_ROUNDS):
            modulus = self._moduli[number % 2]
            left, right = right, _added(left, self._round(number, right, modulus), modulus)
        return left, right

    def decrypt(self, left: Numbers, right: Numbers) -> tuple[Numbers, Numbers]:
        for number in reversed(range(_ROUNDS)):
            modulus = self._moduli[number % 2]
            taken = np.uint64(modulus) - self._round(number, left, modulus)
            left, right = _added(right, taken, modulus), left
        return left, right

    def _round(self, number: int, half: Numbers, modulus: int) -> Numbers:
        # The round's number stands right before the half, where that is zero.
        first = self._first.copy()
        first[15 - self._bytes] ^= number
        words = first.view(np.uint64)
        blocks = np.empty((len(half), 2), np.uint64)
        blocks[:, 0] = words[0]
        blocks[:, 1] = half.astype(">u8").view(np.uint64) ^ words[1]
        return _remainder(self._aes.encrypt(blocks.view(np.uint8)), self._used, modulus)


def _added(one: Numbers, other: Numbers, modulus: int) -> Numbers:
    # Both are at most the modulus, which is less than 2^63: no overflow.
    total: Numbers = one + other
    # What is less than the modulus wraps around to a great number.
    less: Numbers = np.minimum(total, total - np.uint64(modulus))
    return less


def _remainder(blocks: Bytes, used: int, modulus: int) -> Numbers:
    """The first ``used`` bytes of each block as a number, modulo ``modulus``."""
    if modulus & (modulus - 1) == 0:
        # Radix 2: the last bits are the remainder.
        last = np.ascontiguousarray(blocks[:, used - 8 : used]).view(">u8").ravel()
        return last.astype(np.uint64) & np.uint64(modulus - 1)
    # A step takes as many bits as 64 leave beside a remainder.
    step = next(bits for bits in (32, 16, 8, 4, 1) if modulus.bit_length() + bits <= 64)
    words = np.ascontiguousarray(blocks[:, :used]).view(">u4").astype(np.uint64)
    rest = np.zeros(len(blocks), np.uint64)
    mask = np.uint64((1 << step) - 1)
    for word in words.T:
        for shift in range(32 - step, -1, -step):
            part = (word >> np.uint64(shift)) & mask
            rest = ((rest << np.uint64(step)) | part) % np.uint64(modulus)
    return rest
