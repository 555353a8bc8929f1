"""Sizes and durations as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.config.quantities import parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (4096, 4096),
        ("4096", 4096),
        ("64MiB", 64 * 2**20),
        ("64 MiB", 64 * 2**20),
        ("1.5GiB", 3 * 2**29),
        ("10MB", 10_000_000),
        ("3kB", 3000),
        ("7B", 7),
    ],
)
def test_sizes(text: object, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(2, 2.0), (0.25, 0.25), ("500ms", 0.5), ("10s", 10.0), ("1m", 60.0), ("2h", 7200.0), ("3", 3)],
)
def test_durations(text: object, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "MiB", "-1MiB", "1 M iB", "1mib", "1e3", True, None, [], -5])
def test_bad_sizes(text: object) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "s", "-1s", "1 minute", "1M", True, float("nan"), -1])
def test_bad_durations(text: object) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse_duration(text)


@given(st.integers(min_value=0, max_value=2**60))
def test_whole_numbers_keep_every_byte(count: int) -> None:
    assert parse_size(f"{count}KiB") == count * 1024
    assert parse_size(str(count)) == count
