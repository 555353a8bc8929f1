"""What a transaction holds between two of its schema changes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decode.changes import ChangeSet
from penstock.testing.change_builder import ChangeBuilder, Column, table
from penstock.transform.section import END, Section

# The first two share a layout, so that their rows lie side by side.
TABLES = (
    table("a", Column("id", "int4", key=True)),
    table("b", Column("id", "int4", key=True)),
    table("c", Column("id", "int4", key=True), Column("note", "text")),
)
KINDS = ("a", "b", "c", "truncate", "message")
kinds = st.lists(st.sampled_from(KINDS), max_size=12)
bounds = st.integers(0, 13) | st.just(END)
sections = st.tuples(bounds, bounds).map(lambda drawn: Section(min(drawn), max(drawn)))


def transaction(kinds: Sequence[str]) -> ChangeSet:
    """One change of each kind; rows and messages hold their ordinals."""
    builder = ChangeBuilder()
    with builder.transaction():
        for ordinal, kind in enumerate(kinds):
            if kind == "truncate":
                builder.truncate(TABLES[0])
            elif kind == "message":
                builder.message("m", str(ordinal).encode())
            else:
                into = TABLES["abc".index(kind)]
                builder.insert(into, *[str(ordinal)] * len(into.columns))
    return builder.cut()


def told(changes: ChangeSet) -> dict[int, str]:
    """What of which ordinal is there: by the stamps, and checked against what rows hold."""
    found: dict[int, str] = {}
    for part in changes.tables:
        assert len(part)
        ordinals = part.ordinal.tolist()
        assert part.new_text(0).to_pylist() == [str(ordinal) for ordinal in ordinals]
        found |= dict.fromkeys(ordinals, part.table.name)
    found |= {event.stamp.position.ordinal: "truncate" for event in changes.truncates}
    for event in changes.messages:
        assert event.content == str(event.stamp.position.ordinal).encode()
        found[event.stamp.position.ordinal] = "message"
    assert len(found) == len(changes)
    return found


@given(kinds, sections)
def test_a_section_holds_just_what_lies_between_its_bounds(
    kinds: list[str], section: Section
) -> None:
    part = section.apply(transaction(kinds))
    expected = {n: kind for n, kind in enumerate(kinds) if section.first <= n < section.last}
    assert told(part) == expected


@given(kinds, st.lists(st.integers(0, 12), unique=True).map(sorted))
def test_the_sections_between_all_cuts_are_the_whole_without_them(
    kinds: list[str], cuts: list[int]
) -> None:
    """As schema changes cut a transaction: what stands at a cut is in no section."""
    changes = transaction(kinds)
    found: dict[int, str] = {}
    for before, next_one in pairwise([-1, *cuts, END]):
        part = told(Section(before + 1, next_one).apply(changes))
        assert not part.keys() & found.keys()
        found |= part
    assert found == {n: kind for n, kind in enumerate(kinds) if n not in cuts}


@given(kinds)
def test_without_bounds_it_is_the_whole_transaction(kinds: list[str]) -> None:
    assert told(Section().apply(transaction(kinds))) == dict(enumerate(kinds))


def test_a_table_without_changes_there_is_no_part_of_it() -> None:
    changes = transaction(["a", "c", "a"])
    part = Section(1, 2).apply(changes)
    assert [table.table.name for table in part.tables] == ["c"]
    assert len(Section(3).apply(changes).tables) == 0


@pytest.mark.parametrize("ordinal", [0, 2**32 - 1])
def test_every_ordinal_lies_before_the_end(ordinal: int) -> None:
    """An ordinal has 32 bits."""
    assert Section(ordinal)._holds(ordinal)
    assert not Section(0, ordinal)._holds(ordinal)
