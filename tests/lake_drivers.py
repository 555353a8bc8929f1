"""Drivers of lakes that die, and tables that change, for the tests of members of a family."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from penstock.destination.contract import Destination, Rows, SchemaChange
from penstock.destination.families.staged_merge.destination import StagedMergeDestination
from penstock.destination.families.staged_merge.joined_rows import MergedRows
from penstock.destination.families.staged_merge.receipt import Mark
from penstock.destination.families.target import Target
from penstock.destination.protocols import Verifiable
from penstock.model.errors import DestinationUnavailable
from penstock.model.lsn import Frontier, Position
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName
from penstock.model.watermarks import Watermarks
from penstock.objects.bucket import Bucket
from penstock.testing import Adapter
from penstock.testing.change_builder import UNSET, ChangeBuilder, table
from penstock.testing.contract.chunk_rows import ChunkRows, copy_chunks
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
    apply, begun, done, one_by_one = destination.apply, 0, 0, threading.Lock()
    write = destination.ledger._put  # type: ignore[attr-defined]

    def dying(rows: MergedRows, at: Mark) -> Any:
        nonlocal begun, done
        with one_by_one:
            if begun == last:
                raise DriverDiedError
            begun += 1
        parked = apply(rows, at)
        done += 1
        return parked

    def put(*given: object) -> None:
        if done == last:
            raise DriverDiedError
        write(*given)

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


def expect_chunks_once_in_any_order(adapter: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver dies when a chunk is in its table, and not in the ledger; so does the next one, with
    another chunk. The last one is given these after a third.
    """
    opened(adapter).truncate_table(definition(ITEMS))  # type: ignore[attr-defined]

    def chunk(number: int) -> ChunkRows:
        rows = [(str(10 * number + each), "copied") for each in range(2)]
        return ChunkRows(ITEMS, str(number), rows)

    def dies(*_: object) -> None:
        raise DriverDiedError

    for number in (0, 1):
        destination = opened(adapter)
        assert isinstance(destination, StagedMergeDestination)
        load = destination.load_chunk

        def dying(*given: Any, load: Any = load, of: StagedMergeDestination = destination) -> None:
            load(*given)
            of.ledger._put = dies  # type: ignore[attr-defined]

        monkeypatch.setattr(destination, "load_chunk", dying)
        with pytest.raises(DriverDiedError):
            copy_chunks(destination, chunk(number))
        destination.close()
    destination = opened(adapter)
    assert isinstance(destination, StagedMergeDestination)
    copy_chunks(destination, chunk(2), chunk(1), chunk(0))
    assert adapter.rows((ITEMS.schema, ITEMS.name)).total() == 6
    destination.close()


def expect_rows_once_around_another_commit(
    adapter: Adapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver dies between the rows of one table and the schema change of another. Before the
    transaction comes again a commit brings a third one on, which was behind.
    """
    other, builder = table("others", *ITEMS.columns), ChangeBuilder()
    text, number = TypeName("pg_catalog", "text"), TypeName("pg_catalog", "bigint")
    wider = items_with(
        (1, "id", number, None), (2, "name", text, None), (3, "more", text, None), name="items"
    )
    changed = TableChange(definition(ITEMS), wider)
    with builder.transaction():
        builder.insert(NOTES, "1", "once")
    notes, end = builder.cut(), Watermarks(Frontier(2**40, 2**40))

    def commit(destination: Destination) -> None:
        assert isinstance(destination, StagedMergeDestination)
        rows = Rows((destination.writer().write([notes]),))
        change = SchemaChange(Position(1, 1), 0, "ALTER TABLE", (changed,))
        destination.commit_sections([rows, change], end)

    def dies(*_: object) -> None:
        raise DriverDiedError

    destination = opened(adapter, other)
    monkeypatch.setattr(destination, "alter", dies)
    with pytest.raises(DriverDiedError):
        commit(destination)
    destination.close()
    destination = opened(adapter, other)
    assert isinstance(destination, StagedMergeDestination)
    with builder.transaction():
        builder.insert(other, "1", "caught up")
    receipt = destination.catchup_writer([other.oid]).write([builder.cut()])
    at = destination.committed() or Watermarks()
    destination.commit([receipt], at.placed({other.oid: builder.frontier}))
    commit(destination)
    for each in (NOTES, other):
        assert adapter.rows((each.schema, each.name)).total() == 1
    destination.close()


def expect_parked_keys_kept(adapter: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A driver dies when a table stands behind changes of a row that is not there, of which not all
    was sent, and before the ledger says so.
    """
    builder = ChangeBuilder(leave_out=[LOOSE])
    destination = opened(adapter)
    assert isinstance(destination, StagedMergeDestination)
    deliver(destination, builder.frontier, [insert_items(builder, 0, 1)])
    destination.replaying([ITEMS.oid])
    with builder.transaction():
        builder.update(ITEMS, "77", UNSET)
        builder.insert(ITEMS, "78", "new")
    receipt = destination.catchup_writer([ITEMS.oid]).write([builder.cut()])
    at = destination.committed()
    assert at is not None
    dies_before(destination, 1, monkeypatch)
    with pytest.raises(DriverDiedError):
        destination.commit([receipt], at.placed({ITEMS.oid: builder.frontier}))
    destination.close()
    destination = opened(adapter)
    assert isinstance(destination, StagedMergeDestination)
    at = destination.committed()
    assert at is not None
    assert at.at(ITEMS.oid) == builder.frontier, "its changes do not come again"
    assert list(destination.parked_keys(ITEMS.oid)) == [("77",)]
    destination.close()


def expect_later_positions_kept(adapter: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger takes a commit, and its answer is lost. What is committed without rows behind it
    is what the next driver finds.
    """
    builder = ChangeBuilder(leave_out=[LOOSE])
    destination = opened(adapter)
    assert isinstance(destination, StagedMergeDestination)
    deliver(destination, builder.frontier, [insert_items(builder, 0, 1)])
    changes = insert_items(builder, 1, 1)
    with monkeypatch.context() as patch:
        write = destination.ledger._put  # type: ignore[attr-defined]

        def lost(*given: object) -> None:
            write(*given)
            raise DestinationUnavailable("as the test wants it", remedy="")

        patch.setattr(destination.ledger, "_put", lost)
        with pytest.raises(DestinationUnavailable):
            deliver(destination, builder.frontier, [changes])
    assert destination.committed() == Watermarks(builder.frontier)
    later = Frontier(2**40, 2**40)
    deliver(destination, later, [])
    destination.close()
    destination = opened(adapter)
    assert destination.committed() == Watermarks(later)
    destination.close()


def expect_copied_anew(adapter: Adapter) -> None:
    """A table that somebody removed: what `penstock tables resync` does makes it again, and so does
    a copy of a table that is followed again, which nobody fits before it.
    """
    for fits in (True, False):
        destination = opened(adapter)
        assert isinstance(destination, StagedMergeDestination)
        destination.drop(destination._targets[ITEMS.oid])
        if fits:
            destination.fit_table(definition(ITEMS), ())
            destination.prepare([definition(ITEMS)])
        assert not destination.has_foreign_rows(definition(ITEMS))
        destination.truncate_table(definition(ITEMS))
        copy_chunks(destination, ChunkRows(ITEMS, "0", [("1", "copied"), ("2", "copied")]))
        if destination.capabilities.merges:
            assert adapter.rows((ITEMS.schema, ITEMS.name)).total() == 2
        destination.close()


def expect_tables_asked_once(adapter: Adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    """How far tables have come a driver asks them before it has committed to them itself, and when
    a commit broke off: what is there then does not come again.
    """
    destination, builder = opened(adapter), ChangeBuilder(leave_out=[LOOSE])
    assert isinstance(destination, StagedMergeDestination)
    held, asked = destination.held, list[int]()

    def asking(target: Target) -> Mark | None:
        asked.append(target.oid)
        return held(target)

    def breaks(*_: object) -> None:
        raise DestinationUnavailable("as the test wants it", remedy="")

    monkeypatch.setattr(destination, "held", asking)
    all_changes = [insert_items(builder, 0, 2)]
    deliver(destination, builder.frontier, all_changes)
    assert sorted(asked) == sorted([ITEMS.oid, NOTES.oid])
    asked.clear()
    all_changes.append(insert_items(builder, 2, 2))
    deliver(destination, builder.frontier, [all_changes[-1]])
    assert not asked
    all_changes.append(insert_items(builder, 4, 2))
    with monkeypatch.context() as patch:
        patch.setattr(destination.ledger, "_put", breaks)
        with pytest.raises(DestinationUnavailable):
            deliver(destination, builder.frontier, [all_changes[-1]])
    deliver(destination, builder.frontier, [all_changes[-1]])
    assert sorted(asked) == sorted([ITEMS.oid, NOTES.oid])
    assert_delivered(adapter, reference(*all_changes))
    destination.close()


def expect_others_added_up(adapter: Adapter, harm: Callable[[], object]) -> None:
    """Of a table that cannot be added up `penstock verify` says so, and compares the others."""
    destination, builder = opened(adapter), ChangeBuilder(leave_out=[LOOSE])
    deliver(destination, builder.frontier, [insert_items(builder, 0, 2)])
    destination.close()
    harm()
    looking = adapter.make()
    assert isinstance(looking, Verifiable)
    with looking.pinned():
        assert looking.table_sum(definition(ITEMS)) is None
        of_others = looking.table_sum(definition(NOTES))
    assert of_others is not None
    assert of_others.rows == sum(adapter.rows((NOTES.schema, NOTES.name)).values())
    looking.close()
