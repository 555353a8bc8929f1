"""Drivers of lakes that die, and tables that change, for the tests of members of a family."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any

import pytest

from penstock.destination.contract import Destination
from penstock.destination.families.staged_merge.destination import StagedMergeDestination
from penstock.destination.families.staged_merge.joined_rows import MergedRows
from penstock.destination.families.staged_merge.receipt import Mark
from penstock.model.lsn import Frontier
from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName
from penstock.model.watermarks import Watermarks
from penstock.objects.bucket import Bucket
from penstock.testing import Adapter
from penstock.testing.change_builder import ChangeBuilder
from penstock.testing.contract.deliveries import (
    ITEMS,
    LOOSE,
    NOTES,
    assert_delivered,
    definition,
    deliver,
    insert_items,
    opened,
    reference,
)
from penstock.transform.floors import Floors


def expect_staged_in_a_bucket(adapter: Adapter, stage: Bucket) -> None:
    """What tasks write goes there, and is gone once it was merged, or at the next start; a commit
    without rows is remembered there.
    """
    destination, builder = opened(adapter), ChangeBuilder(leave_out=[LOOSE])
    changes = insert_items(builder, 0, 2)
    destination.writer().write([changes])  # nobody comes for it
    deliver(destination, builder.frontier, [changes])
    assert [each.name.endswith(".arrow") for each in stage.list()].count(True) == 2  # of two tables
    opened(adapter).close()
    assert [each.name for each in stage.list()] == ["notes/2.note.json"]
    destination = opened(adapter)
    later = Frontier(2**40, 2**40)
    deliver(destination, later, [])
    assert adapter.make().committed() == Watermarks(later)
    assert_delivered(adapter, reference(changes))


class DriverDiedError(Exception):
    pass


def expect_tables_told_apart(
    adapter: Adapter, builder: ChangeBuilder, tables: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver dies when it has committed so many tables of a batch. The next one cuts batches
    elsewhere: what a table has is told, and does not come again.
    """
    destination = opened(adapter)
    first = insert_items(builder, 0, 3)
    start = builder.frontier
    deliver(destination, start, [first])
    second = insert_items(builder, 3, 3)
    middle = builder.frontier
    third = insert_items(builder, 6, 3)
    end = builder.frontier
    dies_before(destination, tables, monkeypatch)
    with pytest.raises(DriverDiedError):
        deliver(destination, end, [second, third])

    destination = opened(adapter)
    at = destination.committed()
    assert at is not None
    assert at.low == start
    every = {ITEMS.oid, NOTES.oid, LOOSE.oid}
    # Side by side: any of them may be first.
    assert len([oid for oid in every if at.at(oid) == end]) == tables
    for changes, frontier in ((second, middle), (third, end)):
        floors = Floors.of_stream(at, set(), every)
        deliver(destination, frontier, [floors.apply(changes)], behind=at.behind)
        at = at.after(frontier, set())
    assert_delivered(adapter, reference(first, second, third))


def dies_before(destination: Destination, last: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It dies once it has committed ``last`` tables, before the next or the control table."""
    assert isinstance(destination, StagedMergeDestination)
    apply, done, one_by_one = destination.apply, 0, threading.Lock()

    def dying(rows: MergedRows, at: Mark) -> Any:
        nonlocal done
        with one_by_one:
            if done == last:
                raise DriverDiedError
            done += 1
        return apply(rows, at)

    def put(*_: object) -> None:
        raise DriverDiedError

    monkeypatch.setattr(destination, "apply", dying)
    monkeypatch.setattr(destination.ledger, "_put", put)


def items_with(*columns: tuple[int, str, TypeName, str | None], name: str) -> TableDefinition:
    """``items`` with these columns: number, name, type, and what older rows have there."""
    return replace(
        definition(ITEMS),
        name=name,
        columns=tuple(
            ColumnDefinition(number, column, kind, not_null=number == 1, missing=missing)
            for number, column, kind, missing in columns
        ),
    )
