"""Tables that do not all stand at the same position get each change exactly once."""

from __future__ import annotations

import random

import pytest

from penstock.model.lsn import Frontier
from penstock.model.watermarks import Watermarks
from penstock.testing.change_builder import ChangeBuilder, Column, table
from penstock.transform.floors import Floors

ITEMS = table("items", Column("id", "int8", key=True))
NOTES = table("notes", Column("id", "int8", key=True))


def f(lsn: int) -> Frontier:
    return Frontier(lsn, lsn + 1)


def test_a_table_set_aside_stays_where_it_was() -> None:
    standing = Watermarks(f(10)).placed({7: f(10)})
    assert standing.behind == {7: f(10)}
    standing = standing.after(f(20), {7}).after(f(30), {7})
    assert standing == Watermarks(f(30), {7: f(10)})
    assert standing.low == f(10)
    assert standing.start({7}) == f(30)
    assert Floors.of_stream(standing, {7}) == Floors(30, {}, frozenset({7}))
    assert standing.is_together({7})


def test_a_table_that_is_tried_again_catches_up_and_joins() -> None:
    standing = Watermarks(f(30), {7: f(10)})
    assert standing.start(()) == f(10)
    assert Floors.of_stream(standing, ()) == Floors(30, {7: 10}, frozenset())
    assert not standing.is_together(())
    standing = standing.after(f(20), ())
    assert standing == Watermarks(f(30), {7: f(20)})
    assert standing.after(f(30), ()) == Watermarks(f(30))
    assert standing.after(f(35), ()) == Watermarks(f(35))


@pytest.mark.parametrize("seed", range(30))
def test_every_table_gets_every_change_once(seed: int) -> None:
    """Queries start, end, set tables aside and take them up again at random."""
    chance = random.Random(seed)
    commits = range(1, 60)
    tables = (1, 2, 3)
    got: dict[int, list[int]] = {oid: [] for oid in tables}
    standing, aside = Watermarks(f(0)), set[int]()
    while standing != Watermarks(f(59)):
        standing = standing.placed({oid: standing.at(oid) for oid in aside})
        floors, at = Floors.of_stream(standing, aside), standing.start(aside)
        for _ in range(chance.randint(0, 4)):
            end = min(59, at.commit_lsn + chance.randint(0, 9))
            for lsn in range(at.commit_lsn + 1, end + 1):
                for oid in tables:
                    if oid not in floors.left_out and lsn > floors.tables.get(oid, floors.general):
                        got[oid].append(lsn)
            at = f(end)
            standing = standing.after(at, aside)
        aside = {oid for oid in tables if chance.random() < 0.3}
        if standing.frontier == f(59):
            aside = set()
    assert got == {oid: list(commits) for oid in tables}


def test_floors_cut_rows_truncates_and_messages() -> None:
    builder = ChangeBuilder()
    for number in range(3):
        with builder.transaction():
            builder.insert(ITEMS, str(number))
            builder.insert(NOTES, str(number))
            builder.truncate(ITEMS, NOTES)
            builder.message("m", b"x")
    changes = builder.cut()
    commits = sorted({event.stamp.position.commit_lsn for event in changes.truncates})

    found = Floors(commits[0], {NOTES.oid: commits[1]}).apply(changes)
    assert {t.table.name: len(t) for t in found.tables} == {"items": 2, "notes": 1}
    assert [[t.name for t in event.tables] for event in found.truncates] == [
        ["items"],
        ["items", "notes"],
    ]
    assert len(found.messages) == 2

    found = Floors(commits[0], {}, frozenset({ITEMS.oid})).apply(changes)
    assert {t.table.name: len(t) for t in found.tables} == {"notes": 2}
    assert [[t.name for t in event.tables] for event in found.truncates] == [["notes"], ["notes"]]

    assert len(Floors().apply(changes)) == len(changes)


def test_a_table_that_is_ahead_waits_for_the_others() -> None:
    """Copied at a point that the stream, which has a backlog, has not reached yet."""
    standing = Watermarks(f(10)).placed({7: f(30)})
    assert standing.low == standing.start(()) == f(10)
    assert Floors.of_stream(standing, ()) == Floors(10, {7: 30}, frozenset())
    assert not standing.is_together(())
    standing = standing.after(f(20), ())
    assert standing == Watermarks(f(20), {7: f(30)})
    assert standing.after(f(30), ()) == standing.after(f(30), ()).together(()) == Watermarks(f(30))
    assert standing.after(f(40), ()) == Watermarks(f(40))
    # No commit came, but the WAL up to there was seen.
    assert standing.after(Frontier(20, 50), ()) == Watermarks(Frontier(20, 50))
    # The same point under another name.
    assert Watermarks(Frontier(10, 30), {7: Frontier(29, 30)}).together(()) == Watermarks(
        Frontier(10, 30)
    )
