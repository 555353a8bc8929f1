"""What every destination promises of batches, crashes and drivers, by what it claims to do."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy

import pytest

from penstock.decode.changes import ChangeSet
from penstock.destination.contract import Destination
from penstock.destination.protocols import TablesFailAlone
from penstock.model.errors import Fenced
from penstock.model.lsn import Frontier
from penstock.model.source_identity import SourceIdentity
from penstock.model.watermarks import Watermarks
from penstock.testing.adapter import Adapter
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, table
from penstock.testing.contract.deliveries import (
    ITEMS,
    NOTES,
    assert_delivered,
    assert_nothing_missing,
    definition,
    deliver,
    followed,
    insert_items,
    needs,
    opened,
    reference,
)


def _repeated(destination: Destination, changes: ChangeSet) -> list[ChangeSet]:
    """Changes that were written by two tasks, of which one was committed."""
    abilities = destination.capabilities
    return [changes] * (2 if abilities.sends_at_once and not abilities.exactly_once else 1)


def _moved_and_truncated(builder: ChangeBuilder, *, cut: bool) -> list[ChangeSet]:
    """The row 1 moves twice in part, then the table is emptied, by a transaction of its own."""
    with builder.transaction():
        builder.update(NOTES, "2", UNSET, key=["1", None])
        builder.update(NOTES, "3", UNSET, key=["2", None])
    runs = [builder.cut()] if cut else []
    with builder.transaction():
        builder.truncate(NOTES)
        builder.insert(NOTES, "4", "new")
    return [*runs, builder.cut()]


class BatchTests:
    """Batches, crashes and drivers."""

    def test_nothing_is_committed_at_first(self, adapter: Adapter) -> None:
        destination = opened(adapter)
        assert destination.committed() is None
        assert_delivered(adapter, [])

    def test_an_empty_commit_moves_the_frontier(self, adapter: Adapter) -> None:
        destination = opened(adapter)
        for end in (0x10, 0x90):
            destination.commit([], Watermarks(Frontier(0x10, end)))
            at = Watermarks(Frontier(0x10, end))
            remembered = at if destination.capabilities.remembers else None
            assert destination.committed() == remembered
            assert adapter.make().committed() == remembered
        assert_delivered(adapter, [])

    def test_the_source_of_a_position_is_remembered_with_it(self, adapter: Adapter) -> None:
        destination = opened(adapter)
        if not destination.capabilities.remembers:
            pytest.skip(f"{destination.name} does not remember its position")
        first, second = (SourceIdentity("7", line, "shop", "some uuid") for line in (1, 2))
        for end, source in ((0x10, None), (0x20, first), (0x30, second)):
            at = Watermarks(Frontier(0x10, end), source=source)
            destination.commit([], at)
            assert destination.committed() == at
            assert adapter.make().committed() == at
        assert opened(adapter).committed() == at

    def test_what_is_forgotten_begins_anew(self, adapter: Adapter, builder: ChangeBuilder) -> None:
        """After `penstock destroy`: positions of another slot, or server, may be lower."""
        destination = opened(adapter)
        if not destination.capabilities.remembers:
            pytest.skip(f"{destination.name} does not remember its position")
        changes = insert_items(builder, 0, 3)
        deliver(destination, Frontier(2**40, 2**40), [changes])
        destination.commit([], Watermarks(Frontier(2**40, 2**41)))
        destination.close()
        assert adapter.make().forget()
        assert adapter.make().committed() is None
        again = adapter.make()
        again.open()
        assert again.committed() is None
        again.commit([], Watermarks(Frontier(0x10, 0x20)))
        assert again.committed() == Watermarks(Frontier(0x10, 0x20))

    def test_every_change_once_and_in_order(self, adapter: Adapter, builder: ChangeBuilder) -> None:
        destination = opened(adapter)
        changes = insert_items(builder, 0, 40)
        deliver(destination, builder.frontier, [changes])
        assert_delivered(adapter, reference(changes))
        assert len(reference(changes)) == (160 if adapter.takes_keyless else 120)
        if destination.capabilities.remembers:
            assert destination.committed() == Watermarks(builder.frontier)

    def test_tasks_of_several_runs_over_several_batches(
        self, adapter: Adapter, builder: ChangeBuilder
    ) -> None:
        destination = opened(adapter)
        runs = [insert_items(builder, 10 * number, 5) for number in range(6)]
        deliver(destination, builder.frontier, [runs[0], runs[1]], [runs[2]], [])
        deliver(destination, builder.frontier, [runs[3]], [runs[4], runs[5]])
        assert_delivered(adapter, reference(*runs))

    def test_a_task_that_ran_twice_counts_once(
        self, adapter: Adapter, builder: ChangeBuilder
    ) -> None:
        destination = opened(adapter)
        first, second = insert_items(builder, 0, 5), insert_items(builder, 5, 5)
        destination.writer().write([first])
        deliver(destination, builder.frontier, [first], [second])
        assert_delivered(adapter, reference(*_repeated(destination, first), second))

    def test_a_task_that_fails_midway_leaves_nothing(
        self, adapter: Adapter, builder: ChangeBuilder
    ) -> None:
        destination = opened(adapter)
        changes = insert_items(builder, 0, 5)

        def broken() -> Iterator[ChangeSet]:
            yield changes
            raise RuntimeError("executor lost")

        with pytest.raises(RuntimeError, match="executor lost"):
            destination.writer().write(broken())
        if not destination.capabilities.sends_at_once:
            assert_delivered(adapter, [])
        deliver(destination, builder.frontier, [changes])
        if destination.capabilities.sends_at_once and not destination.capabilities.exactly_once:
            # How much had left when it failed is a matter of luck.
            assert_nothing_missing(adapter, reference(changes))
        else:
            assert_delivered(adapter, reference(changes))

    @pytest.mark.parametrize("cut", [False, True], ids=["one run", "two runs"])
    def test_a_row_that_moved_and_was_truncated_comes_again(
        self, adapter: Adapter, builder: ChangeBuilder, cut: bool
    ) -> None:
        """Its columns are unset, and nobody has them any more. After a crash runs may be cut in
        other places than before.
        """
        if adapter.keeps != "rows":
            pytest.skip("holds changes, and nothing that an unset column could be taken from")
        destination = opened(adapter)
        with builder.transaction():
            builder.insert(NOTES, "1", "long")
        first = builder.cut()
        deliver(destination, builder.frontier, [first])
        same = deepcopy(builder)
        destination.writer().write(_moved_and_truncated(builder, cut=cut))
        destination = opened(adapter)
        again = _moved_and_truncated(same, cut=True)
        deliver(destination, builder.frontier, again)
        assert_delivered(adapter, reference(first, *again))

    def test_a_crash_before_commit_leaves_no_trace(
        self, adapter: Adapter, builder: ChangeBuilder
    ) -> None:
        destination = opened(adapter)
        first = insert_items(builder, 0, 5)
        deliver(destination, builder.frontier, [first])
        reached = builder.frontier
        second = insert_items(builder, 5, 5)
        destination.writer().write([second])

        destination = opened(adapter)
        if destination.capabilities.remembers:
            assert destination.committed() == Watermarks(reached)
        if destination.capabilities.sends_at_once:
            assert_delivered(adapter, reference(first, second))
        else:
            assert_delivered(adapter, reference(first))
        deliver(destination, builder.frontier, [second])
        assert_delivered(adapter, reference(first, *_repeated(destination, second)))

    def test_after_a_crash_the_committed_frontier_says_where_to_go_on(
        self, adapter: Adapter, builder: ChangeBuilder
    ) -> None:
        destination = opened(adapter)
        first = insert_items(builder, 0, 5)
        deliver(destination, builder.frontier, [first])
        reached = builder.frontier
        second = insert_items(builder, 5, 5)

        destination = opened(adapter)
        if destination.capabilities.exactly_once:
            # It remembers, so nobody sends the first batch again.
            assert destination.committed() == Watermarks(reached)
            deliver(destination, builder.frontier, [second])
            assert_delivered(adapter, reference(first, second))
        else:
            # The log's reader entry may be older than the delivery: once more, whole and in order.
            assert destination.committed() is None
            deliver(destination, builder.frontier, [first, second])
            assert_delivered(adapter, reference(first, first, second))

    def test_a_stale_driver_is_fenced(self, adapter: Adapter, builder: ChangeBuilder) -> None:
        stale = opened(adapter)
        first = insert_items(builder, 0, 2)
        deliver(stale, builder.frontier, [first])
        second = insert_items(builder, 2, 2)
        receipt = stale.writer().write([second])

        current = opened(adapter)
        if not current.capabilities.remembers:
            # Nothing is stored that could tell two drivers apart: the lock in the source keeps them
            # apart, and a stale one can only repeat.
            stale.commit([receipt], Watermarks(builder.frontier))
            assert_delivered(adapter, reference(first, second))
            return
        with pytest.raises(Fenced, match="taken over"):
            stale.commit([receipt], Watermarks(builder.frontier))
        deliver(current, builder.frontier, [second])
        for frontier in (builder.frontier, Frontier(2**40, 2**40)):
            with pytest.raises(Fenced, match="taken over"):
                stale.commit([], Watermarks(frontier))
        assert_delivered(adapter, reference(first, second))
        assert current.committed() == Watermarks(builder.frontier)

    def test_tables_are_prepared_again_when_others_come(
        self, adapter: Adapter, builder: ChangeBuilder
    ) -> None:
        later = table("later", Column("id", "int8", key=True))
        destination = opened(adapter)
        first = insert_items(builder, 0, 3)
        deliver(destination, builder.frontier, [first])
        destination.prepare([definition(of) for of in followed(adapter, later)])
        with builder.transaction():
            builder.insert(later, "1")
        second = insert_items(builder, 3, 3)
        deliver(destination, builder.frontier, [second])
        assert_delivered(adapter, reference(first, second), later)

    def test_tables_that_are_behind_are_remembered(
        self, adapter: Adapter, builder: ChangeBuilder
    ) -> None:
        destination = opened(adapter)
        needs(destination, TablesFailAlone)
        changes = insert_items(builder, 0, 3)
        behind = {ITEMS.oid: Frontier(0x10, 0x18), NOTES.oid: builder.frontier}
        deliver(destination, builder.frontier, [changes], behind=behind)
        assert destination.committed() == Watermarks(builder.frontier, behind)
        again = opened(adapter)
        assert again.committed() == Watermarks(builder.frontier, behind)
        later = Watermarks(Frontier(2**40, 2**40))
        again.commit([], later)
        assert again.committed() == later
        assert_delivered(adapter, reference(changes))

    def test_of_two_writes_of_a_row_the_older_one_loses(
        self, adapter: Adapter, builder: ChangeBuilder
    ) -> None:
        destination = opened(adapter)
        if not destination.capabilities.older_loses:
            pytest.skip(f"{destination.name} does not claim that the older one loses")
        first = insert_items(builder, 0, 3)
        with builder.transaction():
            builder.update(ITEMS, "0", "later")
            builder.delete(ITEMS, key=["1", None])
            builder.delete(NOTES, key=["2", None])
        second = builder.cut()
        deliver(destination, builder.frontier, [first, second])
        for older in ([first], [first, second], [first]):
            deliver(destination, builder.frontier, older)
            assert_delivered(adapter, reference(first, second))
