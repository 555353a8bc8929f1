"""LSNs as text and numbers, and the two orders made of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.lsn import NOTHING, Frontier, Position, format_lsn, parse_lsn

lsns = st.integers(0, 2**64 - 1)


@given(lsns)
def test_text_and_back(lsn: int) -> None:
    assert parse_lsn(format_lsn(lsn)) == lsn


@pytest.mark.parametrize(
    ("text", "lsn"),
    [
        ("0/0", 0),
        ("16/B374D848", 0x16_B374D848),
        ("16/b374d848", 0x16_B374D848),
        (" 1/2\n", 0x1_00000002),
        ("FFFFFFFF/FFFFFFFF", 2**64 - 1),
    ],
)
def test_what_postgres_writes(text: str, lsn: int) -> None:
    assert parse_lsn(text) == lsn


@pytest.mark.parametrize("text", ["", "/", "1/", "/1", "1", "1/2/3", "G/1", "0x1/2", "100000000/0"])
def test_anything_else_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError, match="16/B374D848"):
        parse_lsn(text)


@given(st.tuples(lsns, st.integers(0, 2**32)), st.tuples(lsns, st.integers(0, 2**32)))
def test_positions_order_by_commit_then_ordinal(a: tuple[int, int], b: tuple[int, int]) -> None:
    assert (Position(*a) < Position(*b)) == (a < b)


def test_positions_are_readable() -> None:
    assert str(Position(0x1_000000FF, 3)) == "1/FF+3"


@given(lsns, lsns)
def test_a_frontier_survives_json(commit_lsn: int, end_lsn: int) -> None:
    frontier = Frontier(commit_lsn, end_lsn)
    assert Frontier.from_json(frontier.to_json()) == frontier
    assert frontier >= NOTHING


def test_json_of_a_frontier_has_one_spelling() -> None:
    """Spark compares offsets as text."""
    assert list(Frontier(1, 2).to_json().items()) == [("commit_lsn", "0/1"), ("end_lsn", "0/2")]


def test_frontiers_are_ordered_by_the_wal_that_they_cover() -> None:
    snapshot, idle, commit = Frontier(99, 100), Frontier(10, 120), Frontier(110, 118)
    assert sorted([idle, commit, snapshot]) == [snapshot, commit, idle]
    assert max(snapshot, idle) == idle
    assert min(snapshot, idle) == snapshot
    assert snapshot < commit <= idle > commit >= snapshot
    assert Frontier(10, 100) < snapshot
