"""Images as lines of COPY, all columns at once, against the same made of each column."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decode.changes import TableChanges, side_by_side
from penstock.decode.copy_text import copy_lines
from penstock.decode.plain_lines import plain_lines
from penstock.pgoutput.messages import UNSET
from penstock.pgoutput.tuples import pad, split_rows
from penstock.testing.change_builder import ChangeBuilder, Column, table

ITEMS = table("items", Column("id", "int8", key=True), Column("a", "text"), Column("b", "text"))
OTHERS = table("others", Column("id", "int8", key=True), Column("a", "text"), Column("b", "text"))
WIDE = table("wide", Column("id", "int8", key=True), Column("a", "text"))

Row = tuple[str | None, ...]
plain = st.text(
    st.characters(exclude_characters="\\", exclude_categories=["Cs", "Cc"]), max_size=12
)
rows = st.tuples(plain, st.none() | plain, st.none() | plain)
special = st.sampled_from(["\\", "\t", "\n", "\r", "\\N", "\x01", "a\\.", "\v"])


def changes_of(*written: tuple[bool, Row]) -> list[TableChanges]:
    """Inserts into two tables of one shape, in any order."""
    builder = ChangeBuilder()
    with builder.transaction():
        for is_item, row in written:
            builder.insert(ITEMS if is_item else OTHERS, *row)
    return list(builder.cut().tables)


def by_columns(changes: TableChanges) -> list[str]:
    columns = [changes.new_text(place) for place in range(3)]
    lines: list[str] = copy_lines(columns, len(changes)).to_pylist()
    return lines


@given(st.lists(st.tuples(st.booleans(), rows), min_size=1, max_size=12))
def test_lines_are_those_of_the_columns(written: list[tuple[bool, Row]]) -> None:
    tables = changes_of(*written)
    for changes in [*tables, side_by_side(tables)]:
        lines = changes.new_lines()
        # Those of one table may lie too far apart between the other's.
        assert lines is not None or len(tables) > 1
        if lines is not None:
            assert lines.to_pylist() == by_columns(changes)
    assert side_by_side(tables).new_lines() is not None


@given(st.lists(rows, min_size=1, max_size=5), special, st.integers(0, 2), st.data())
def test_what_has_to_be_escaped_is_left_to_the_columns(
    some: list[Row], text: str, place: int, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(some) - 1))
    row = list(some[at])
    row[place] = text
    some[at] = tuple(row)
    (changes,) = changes_of(*((True, row) for row in some))
    assert changes.new_lines() is None
    assert len(by_columns(changes)) == len(some)


def test_a_null_at_the_end_and_an_empty_text() -> None:
    (changes,) = changes_of((True, ("1" * 80, "", None)), (True, ("2" * 80, None, "")))
    lines = changes.new_lines()
    assert lines is not None
    assert lines.to_pylist() == ["1" * 80 + "\t\t\\N\n", "2" * 80 + "\t\\N\t\n"]


def test_what_was_not_sent_is_no_null() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.update(ITEMS, "1" * 80, "a", UNSET)
    (changes,) = builder.cut().tables
    assert changes.new_lines() is None


def test_rows_that_lie_far_apart_are_left_to_the_columns() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        for _ in range(3):
            builder.insert(ITEMS, "1", "a", "b")
            builder.insert(WIDE, "1", "x" * 500)
    (changes,) = (each for each in builder.cut().tables if each.table.name == "items")
    assert changes.new_lines() is None


@pytest.mark.parametrize("value", [b"\xff", b"\xc3", b"a\xe6\x97"])
def test_what_is_no_text_is_left_to_the_columns(value: bytes) -> None:
    """Not even where it would be one together with what follows."""
    row = b"I\0\0\0\1N\0\2t" + struct.pack(">I", len(value)) + value + b"t\0\0\0\1\xa9"
    images = split_rows(
        pad(row), np.array([ord("I")], np.uint8), np.array([0]), np.array([len(row)]), 2
    )
    assert plain_lines(pad(row), images.new) is None
