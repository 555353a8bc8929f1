"""Which lane a change is sent in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.destination.encode.json_values import TEXT
from penstock.destination.families.queue.lanes import hash_texts

_WORD = 2**64


def _mixed(number: int) -> int:
    number = (number + 0x9E3779B97F4A7C15) % _WORD
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9 % _WORD
    number = (number ^ (number >> 27)) * 0x94D049BB133111EB % _WORD
    return number ^ (number >> 31)


def _slow_hash(text: str | None) -> int:
    data = (text or "").encode()
    weights = (_mixed(place) | 1 for place in range(len(data)))
    total = sum((byte + 1) * weight for byte, weight in zip(data, weights, strict=True))
    return _mixed((len(data) + total) % _WORD)


@given(st.lists(st.none() | st.text(), max_size=20), st.integers(0, 3))
def test_hashes_of_columns_are_those_of_their_texts(texts: list[str | None], skip: int) -> None:
    column = pa.array(texts, TEXT)
    # A slice has its own place in the buffers.
    assert hash_texts(column[skip:]).tolist() == [_slow_hash(text) for text in texts[skip:]]


def test_what_stands_behind_a_null_does_not_count() -> None:
    texts = pa.array(["one", "two", "three"], TEXT)
    offsets, data = texts.buffers()[1:]
    valid = pa.py_buffer(bytes([0b101]))
    masked = pa.Array.from_buffers(TEXT, 3, [valid, offsets, data])
    assert masked.to_pylist() == ["one", None, "three"]
    assert hash_texts(masked).tolist() == [_slow_hash(t) for t in ("one", None, "three")]


def test_hashes_stay_what_they_are() -> None:
    """Positions are stored lane by lane: with other hashes they would mean other changes."""
    found = hash_texts(pa.array(["", "public.items", '{"id":1}', "größe"], TEXT)).tolist()
    assert found == [
        16294208416658607535,
        2352958874497034832,
        3493151927118911411,
        11769320081007664691,
    ]


def test_keys_spread_over_the_lanes() -> None:
    keys = pa.array([f'{{"id":{number}}}' for number in range(8000)], TEXT)
    counts = np.bincount((hash_texts(keys) % np.uint64(4)).astype(np.int64))
    assert counts.min() > 1800
