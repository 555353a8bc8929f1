"""Whether a publication that somebody else may have changed has published everything."""

from __future__ import annotations

from dataclasses import replace

from penstock.model.publication_state import (
    PublicationOptions,
    PublicationState,
    PublishedTable,
)

ALL = PublicationOptions("16400/733", "insert, update, delete, truncate", via_root=True)
STATE = PublicationState(
    {"first": ALL, "second": replace(ALL, publish="insert")},
    {7: PublishedTable("first", 100), 8: PublishedTable("second", 101)},
)


def with_tables(**tables: PublishedTable) -> PublicationState:
    return replace(STATE, tables={int(oid[1:]): table for oid, table in tables.items()})


def test_what_nobody_touched_has_lost_nothing() -> None:
    assert STATE.lost(STATE) == {}
    stored = PublicationState.from_json(STATE.to_json())
    assert stored == STATE
    assert stored.lost(STATE) == {}


def test_a_table_that_left_and_came_back() -> None:
    now = with_tables(t7=PublishedTable("first", 222), t8=STATE.tables[8])
    assert STATE.lost(now) == {7: "it left publication first and came back"}


def test_a_table_that_was_away_at_the_last_look() -> None:
    before = with_tables(t8=STATE.tables[8])
    assert before.lost(STATE) == {7: "it was not in publication first for a while"}
    # One that is away now is not followed: nothing to say.
    assert STATE.lost(before) == {}


def test_options_that_were_altered_also_if_that_was_undone() -> None:
    altered = replace(ALL, version="16400/999")
    now = replace(STATE, publications={**STATE.publications, "first": altered})
    assert STATE.lost(now) == {7: "what publication first publishes was altered"}
