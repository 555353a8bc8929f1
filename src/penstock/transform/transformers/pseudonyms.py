"""What takes the place of identifiers: keyed hashes, encryption, and permutations that fit keys."""

from __future__ import annotations

import base64
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from penstock.transform.transformers.contract import (
    DrawOptions,
    Inputs,
    NoOptions,
    Transformer,
    UnfitError,
    Uniqueness,
    ValueRefusedError,
)
from penstock.transform.transformers.drawing import hexadecimal, joined
from penstock.transform.transformers.draws import Bytes, Ecb, text_parts
from penstock.transform.transformers.ff1 import Ff1, is_large_enough, longest
from penstock.transform.transformers.parsing import integer_texts, integers

Uints = npt.NDArray[np.uint64]


class HashOptions(NoOptions):
    """``length`` hexadecimal digits."""

    length: int = Field(default=32, ge=8, le=32)
    prefix: str = ""


class Hash(Transformer):
    """A keyed hash (AES-CMAC): who lacks the key cannot try values."""

    options_model = HashOptions
    families = frozenset({"text", "bytea"})
    takes_nulls = True
    is_folding = True
    limit = None

    @property
    def uniqueness(self) -> Uniqueness:
        return "not promised" if self.options.length >= 24 else "lost"

    def check(self) -> None:
        size = len(self.options.prefix) + self.options.length
        if self.facts.length is not None and size > self.facts.length:
            raise UnfitError(
                f"{size} characters do not fit the column's {self.facts.length}: shorten length"
            )
        if self.facts.family == "bytea" and (self.options.prefix or self.options.length % 2):
            raise UnfitError("a column of bytes takes no prefix, and an even length")

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        digits = hexadecimal(self.drawn(values).view(np.uint8).reshape(-1, 16))
        if self.options.length < 32:
            digits = pc.utf8_slice_codeunits(digits, 0, self.options.length)
        if self.facts.family == "bytea":
            return joined("\\x", digits)
        return joined(self.options.prefix, digits) if self.options.prefix else digits


class UuidOptions(DrawOptions):
    """``version_4``: with the marks of a random uuid, which cost the promise of uniqueness."""

    version_4: bool = False


class Uuid(Transformer):
    """A uuid for a uuid: one block of AES, which keeps them unique and can be undone with the key.
    In columns of text, a uuid made of what came.
    """

    options_model = UuidOptions
    families = frozenset({"uuid", "text"})
    takes_nulls = True
    is_folding = True
    limit = None

    @property
    def uniqueness(self) -> Uniqueness:
        kept = self.facts.family == "uuid" and not self.is_random and not self.options.version_4
        return "kept" if kept else "not promised"

    def check(self) -> None:
        if self.facts.length is not None and self.facts.length < 36:
            raise UnfitError("a uuid has 36 characters, more than the column takes")

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        if self.facts.family == "uuid" and not self.is_random:
            data = self._aes.encrypt(_uuid_bytes(values))
        else:
            data = self.drawn(values).view(np.uint8).reshape(-1, 16)
        if self.options.version_4:
            data = data.copy()
            data[:, 6] = (data[:, 6] & 0x0F) | 0x40
            data[:, 8] = (data[:, 8] & 0x3F) | 0x80
        return _uuid_texts(data)

    def undo(self, values: pa.Array) -> pa.Array:
        return _uuid_texts(self._aes.decrypt(_uuid_bytes(values)))

    @cached_property
    def _aes(self) -> Any:
        return _Aes(self._keys.subkey("uuid block", 16))


class _Aes:
    """AES that can be pickled."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __getstate__(self) -> dict[str, Any]:
        return {"_key": self._key}

    @cached_property
    def _ecb(self) -> Ecb:
        return Ecb(self._key)

    def encrypt(self, blocks: Bytes) -> Bytes:
        return self._ecb.encrypt(blocks)

    def decrypt(self, blocks: Bytes) -> Bytes:
        return self._ecb.decrypt(blocks)


_DASHES = (8, 13, 18, 23)
_DIGITS = np.array([place for place in range(36) if place not in _DASHES])


def _uuid_bytes(values: pa.Array) -> Bytes:
    data, starts, lengths = text_parts(values)
    if (lengths != 36).any():
        raise ValueRefusedError("a value is no uuid")
    digits = data[starts[:, None] + _DIGITS]
    numbers = np.where(digits >= 97, digits - 87, digits - 48)
    found: Bytes = (numbers[:, 0::2] << 4 | numbers[:, 1::2]).astype(np.uint8)
    return found


def _uuid_texts(data: Bytes) -> pa.Array:
    plain = hexadecimal(data)
    parts = [
        pc.utf8_slice_codeunits(plain, a, b)
        for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32))
    ]
    return pc.binary_join_element_wise(*parts, pa.scalar("-"))


class IntegerKey(Transformer):
    """Integers for integers (FF1): unique as before, positive as before, and of the same type."""

    families = frozenset({"integer"})

    @property
    def uniqueness(self) -> Uniqueness:
        return "kept"

    def check(self) -> None:
        if self.facts.bits < 20:
            raise UnfitError(f"{self.facts.type_name} has too few values to hide one among them")

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        return self._made(values, back=False)

    def undo(self, values: pa.Array) -> pa.Array:
        return self._made(values, back=True)

    def _made(self, values: pa.Array, *, back: bool) -> pa.Array:
        numbers = integers(values)
        # Below zero one's complement has the same bits as above.
        negative = numbers < 0
        plain = np.where(negative, ~numbers, numbers).astype(np.uint64)
        # 31 bits for all that fit them, whatever the type: a bigint that refers to an integer is
        # the same in both.
        wide = plain >= np.uint64(2**31)
        made = np.empty(len(plain), np.uint64)
        made[~wide] = self._permuted(plain[~wide], 31, back)
        if wide.any():
            made[wide] = self._wide(plain[wide], back)
        found = made.view(np.int64)
        return integer_texts(np.where(negative, ~found, found))

    def _permuted(self, numbers: Uints, bits: int, back: bool) -> Uints:
        cipher = Ff1(self._key(bits), 2, bits)
        right = np.uint64(cipher.right)
        halves = numbers >> right, numbers & np.uint64(2**cipher.right - 1)
        left, low = cipher.decrypt(*halves) if back else cipher.encrypt(*halves)
        return (left << right) | low

    def _wide(self, numbers: Uints, back: bool) -> Uints:
        """Numbers of 32 to 63 bits among themselves: until none of the others comes."""
        made = self._permuted(numbers, 63, back)
        while (short := made < np.uint64(2**31)).any():
            made[short] = self._permuted(made[short], 63, back)
        return made

    def _key(self, bits: int) -> bytes:
        return self._keys.subkey(f"integer key {bits}", 16)


Alphabet = Literal["digits", "letters", "alphanumeric", "hex"]
_ALPHABETS = {
    "digits": b"0123456789",
    "letters": b"abcdefghijklmnopqrstuvwxyz",
    "alphanumeric": b"0123456789abcdefghijklmnopqrstuvwxyz",
    "hex": b"0123456789abcdef",
}


_HASH_DIGITS = 16
"""Of a hash in hexadecimal: 64 bits."""


class TokenOptions(NoOptions):
    """``alphabet``: the characters that are replaced by others of it; all else stays in its place.
    ``short``: what becomes of texts with so few of them that there are fewer than a million such.
    """

    alphabet: Alphabet = "digits"
    short: Literal["refuse", "null", "hash"] = "refuse"


class Token(Transformer):
    """Format-preserving encryption (FF1): digits for digits, letters for letters, of the same
    number. Letters lose their case.
    """

    options_model = TokenOptions

    @property
    def uniqueness(self) -> Uniqueness:
        # Upper and lower case come out alike.
        if self.options.alphabet != "digits":
            return "lost"
        if self.options.short == "hash" and self.limit is not None:
            return "not promised" if self.limit >= _HASH_DIGITS else "lost"
        return "kept" if self.options.short == "refuse" else "not promised"

    @property
    def limit(self) -> int | None:
        return self.facts.length if self.options.short == "hash" else None

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        return self._made(values, back=False)

    def undo(self, values: pa.Array) -> pa.Array:
        return self._made(values, back=True)

    def _made(self, values: pa.Array, *, back: bool) -> pa.Array:
        alphabet = _ALPHABETS[self.options.alphabet]
        data, starts, lengths = text_parts(values)
        end = int(starts[-1] + lengths[-1]) if len(starts) else 0
        place_of = np.full(256, 255, np.uint8)
        for place, letter in enumerate(alphabet):
            place_of[letter] = place
            place_of[ord(chr(letter).upper())] = place
        found = place_of[data[:end]]
        is_digit = found < 255
        before = np.concatenate([[0], np.cumsum(is_digit)])
        counts = before[starts + lengths] - before[starts]
        digits = found[is_digit]
        made = digits.copy()
        short = np.zeros(len(values), bool)
        for count in np.unique(counts).tolist():
            rows = np.flatnonzero(counts == count)
            if not is_large_enough(len(alphabet), count) or count > longest(len(alphabet)):
                short[rows] = True
                continue
            places = before[starts[rows]][:, None] + np.arange(count)
            made[places] = self._permuted(digits[places], len(alphabet), back)
        result = data[:end].copy()
        result[is_digit] = np.frombuffer(alphabet, np.uint8)[made]
        offsets = np.concatenate([starts, [end]]).astype(np.int64)
        texts = pa.LargeStringArray.from_buffers(
            len(values), pa.py_buffer(offsets), pa.py_buffer(result)
        ).cast(pa.string())
        return self._without_short(values, texts, short)

    def _permuted(self, digits: Bytes, radix: int, back: bool) -> Bytes:
        count = digits.shape[1]
        cipher = Ff1(self._keys.subkey(f"token {self.options.alphabet}", 16), radix, count)
        halves = _number(digits[:, : cipher.left], radix), _number(digits[:, cipher.left :], radix)
        left, right = cipher.decrypt(*halves) if back else cipher.encrypt(*halves)
        return np.concatenate(
            [_digits(left, radix, cipher.left), _digits(right, radix, cipher.right)], axis=1
        )

    def _without_short(
        self, values: pa.Array, texts: pa.Array, short: npt.NDArray[np.bool_]
    ) -> pa.Array:
        if not short.any():
            return texts
        if self.options.short == "refuse":
            raise ValueRefusedError(
                f"a value has too few or too many {self.options.alphabet} for a token (short says "
                "what else may become of it)"
            )
        other = pa.nulls(int(short.sum()), pa.string())
        if self.options.short == "hash":
            some = values.filter(pa.array(short))
            other = hexadecimal(self.drawn(some).view(np.uint8).reshape(-1, 16))
        return self.cut(pc.replace_with_mask(texts, pa.array(short), other))


def _number(digits: Bytes, radix: int) -> Uints:
    number = np.zeros(len(digits), np.uint64)
    for column in digits.T:
        number = number * np.uint64(radix) + column
    return number


def _digits(numbers: Uints, radix: int, count: int) -> Bytes:
    digits = np.empty((len(numbers), count), np.uint8)
    for place in range(count - 1, -1, -1):
        digits[:, place] = numbers % np.uint64(radix)
        numbers = numbers // np.uint64(radix)
    return digits


class Encrypt(Transformer):
    """AES-SIV (RFC 5297), which can be undone with the key; in URL-safe base64."""

    families = frozenset({"text", "bytea"})
    limit = None

    @property
    def uniqueness(self) -> Uniqueness:
        return "kept"

    def check(self) -> None:
        limit = self.facts.length
        if limit is not None:
            raise UnfitError(
                f"what is encrypted is longer than before, and the column takes {limit} characters"
            )

    def apply(self, values: pa.Array, inputs: Inputs) -> pa.Array:
        # Often the same ones again: each is encrypted once.
        encoded = values.dictionary_encode()
        cipher = self._cipher()
        if self.facts.family == "bytea":
            made = [
                "\\x" + cipher.encrypt(b"." + bytes.fromhex(text[2:]), None).hex()
                for text in encoded.dictionary.to_pylist()
            ]
        else:
            made = [
                base64.urlsafe_b64encode(cipher.encrypt(b"." + text.encode(), None)).decode()
                for text in encoded.dictionary.to_pylist()
            ]
        return pa.array(made, pa.string()).take(encoded.indices)

    def _cipher(self) -> Any:
        from cryptography.hazmat.primitives.ciphers.aead import AESSIV

        return AESSIV(self._keys.subkey("encrypt", 32))

    def undo(self, values: pa.Array) -> pa.Array:
        return pa.array(map(self.reveal, values.to_pylist()), pa.string())

    def reveal(self, text: str) -> str:
        """What was encrypted. Raises ValueRefusedError for what this key did not encrypt."""
        from cryptography.exceptions import InvalidTag

        try:
            if text.startswith("\\x"):
                found: bytes = self._cipher().decrypt(bytes.fromhex(text[2:]), None)
                return "\\x" + found[1:].hex()
            found = self._cipher().decrypt(base64.urlsafe_b64decode(text), None)
            return found[1:].decode()
        except (InvalidTag, ValueError):
            raise ValueRefusedError("not encrypted with this key and domain") from None
