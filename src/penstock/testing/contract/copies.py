"""What every destination promises of rows that are copied, not streamed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import cast

import pytest

from penstock.decode.row_values import READ_ORDINAL
from penstock.destination.contract import Destination
from penstock.destination.memory import Row
from penstock.destination.protocols import (
    CopiedByWorkers,
    HoldsTables,
    TakesCopies,
    TakesReplays,
)
from penstock.model.errors import BatchAgain, Fenced, SnapshotGone, TableRefused
from penstock.model.lsn import Frontier, Position
from penstock.testing.adapter import Adapter
from penstock.testing.change_builder import ChangeBuilder, Table
from penstock.testing.contract.chunk_rows import (
    ChunkRows,
    Values,
    copy_chunks,
    write_chunks,
    write_elsewhere,
)
from penstock.testing.contract.deliveries import (
    BARE,
    ITEMS,
    LOOSE,
    NOTES,
    TABLES,
    assert_delivered,
    definition,
    deliver_cut,
    needs,
    needs_keyless,
    opened,
    reference,
)
from penstock.testing.contract.schema_changes import WIDER
from penstock.testing.merge_model import frozen

LATER = Frontier(0x90, 0x98)

FIRST: Sequence[Values] = [("1", "a"), ("2", None), ("3", "c")]
SECOND: Sequence[Values] = [("4", "d")]


class CopyingDestination(Destination, TakesCopies):
    """What a destination that takes copies is to the type checker."""


def copying(destination: Destination) -> CopyingDestination:
    """The same; skips the test where the destination takes no copies."""
    needs(destination, TakesCopies)
    return cast("CopyingDestination", destination)


def started(adapter: Adapter, *tables: Table) -> CopyingDestination:
    """A destination that is about to copy ``ITEMS`` and the named tables."""
    destination = copying(opened(adapter, *[of for of in tables if of not in TABLES]))
    for of in (ITEMS, *tables):
        destination.truncate_table(definition(of))
    return destination


def assert_copied(adapter: Adapter, *chunks: ChunkRows) -> None:
    """The rows of these chunks and no others; nothing that would look like a change."""
    if adapter.keeps == "a count":
        assert adapter.copied_count() == sum(len(chunk.rows) for chunk in chunks)
        return
    if adapter.keeps == "rows":
        for of in (*{chunk.of for chunk in chunks}, ITEMS):
            rows = [row for chunk in chunks if chunk.of == of for row in chunk.named_rows()]
            found = adapter.rows((of.schema, of.name))
            assert sorted(found.elements(), key=str) == sorted(map(frozen, rows), key=str)
        return
    expected = [
        (_position(chunk), ((chunk.of.schema, chunk.of.name),), row)
        for chunk in chunks
        for row in chunk.named_rows()
    ]
    copied = [(change.position, change.tables, change.new) for change in adapter.copied()]
    assert sorted(copied, key=str) == sorted(expected, key=str)
    assert_delivered(adapter, [])


def _position(chunk: ChunkRows) -> Position:
    return Position(chunk.snapshot.commit_lsn, READ_ORDINAL)


def first() -> ChunkRows:
    return ChunkRows(ITEMS, "0", FIRST)


def second() -> ChunkRows:
    return ChunkRows(ITEMS, "1", SECOND)


class CopyTests:
    """Copied rows."""

    def test_what_merges_and_takes_copies_takes_replays(self, adapter: Adapter) -> None:
        destination = copying(adapter.make())
        if destination.capabilities.mode != "merge":
            pytest.skip(f"{destination.name} does not claim the mode merge")
        assert isinstance(destination, TakesReplays), "changes come while a table is copied"

    def test_copied_rows_arrive(self, adapter: Adapter) -> None:
        destination = started(adapter)
        receipts = write_chunks(destination, first(), second())
        assert [receipt.rows for receipt in receipts] == [3, 1]
        assert all(receipt.bytes > 0 for receipt in receipts)
        destination.commit_chunks(receipts[:1])
        destination.commit_chunks(receipts[1:])
        assert_copied(adapter, first(), second())
        assert destination.committed() is None

    def test_workers_write_chunks_by_tickets(self, adapter: Adapter) -> None:
        """Also beside tasks, and again: each chunk stands as often as if tasks had written it."""
        destination = started(adapter)
        needs(destination, CopiedByWorkers)
        driver, worker = (cast("CopiedByWorkers", d) for d in (destination, adapter.make()))
        receipts = write_elsewhere(driver, worker, first())
        assert [receipt.rows for receipt in receipts] == [3]
        # One whose lease was lost before.
        write_elsewhere(driver, cast("CopiedByWorkers", adapter.make()), first())
        destination.commit_chunks(receipts)
        copy_chunks(destination, second())
        destination.commit_chunks(receipts)
        twice = [first()] if adapter.chunk_is_sent else []
        if adapter.keeps != "a count":
            assert_copied(adapter, *twice, first(), second())
        assert destination.committed() is None

    def test_a_worker_of_a_copy_that_was_given_up_changes_nothing(self, adapter: Adapter) -> None:
        destination = started(adapter)
        needs(destination, CopiedByWorkers)
        if adapter.keeps != "rows":
            pytest.skip("what is kept for ever is not given up")
        late = json.loads(
            json.dumps(cast("CopiedByWorkers", destination).chunk_ticket(definition(ITEMS)))
        )
        destination.truncate_table(definition(ITEMS))
        worker = cast("CopiedByWorkers", adapter.make())
        with suppress(Fenced, BatchAgain, TableRefused):
            receipt = worker.ticket_writer(definition(ITEMS), late).write(first())
            destination.commit_chunks([receipt])
        copy_chunks(destination, second())
        assert_copied(adapter, second())

    def test_chunks_of_several_tables_in_one_commit(self, adapter: Adapter) -> None:
        chunks = [first(), ChunkRows(NOTES, "0", [("1", "note")])]
        if adapter.takes_keyless:
            chunks.append(ChunkRows(LOOSE, "0", [("equal", None)] * 3))
            chunks.append(ChunkRows(LOOSE, "1", [("equal", None)] * 2))
        destination = started(adapter, NOTES, *[LOOSE] * adapter.takes_keyless)
        copy_chunks(destination, *chunks)
        assert_copied(adapter, *chunks)

    def test_a_chunk_that_is_written_twice_stands_once(self, adapter: Adapter) -> None:
        destination = started(adapter)
        write_chunks(destination, first())  # a task whose receipt was lost
        copy_chunks(destination, first(), second())
        assert_copied(adapter, *([first()] if adapter.chunk_is_sent else []), first(), second())
        if adapter.chunk_stands_once:
            copy_chunks(destination, first())
            destination = copying(opened(adapter))
            copy_chunks(destination, second(), second(), first())
            assert_copied(adapter, first(), second())

    def test_a_receipt_that_is_committed_twice_counts_once(self, adapter: Adapter) -> None:
        destination = started(adapter)
        receipts = write_chunks(destination, first())
        destination.commit_chunks([*receipts, *receipts])
        destination.commit_chunks(receipts)
        if adapter.chunk_stands_once or adapter.chunk_is_sent:
            assert_copied(adapter, first())
        else:
            assert_copied(adapter, first(), first(), first())

    def test_a_chunk_is_not_there_before_its_commit(self, adapter: Adapter) -> None:
        destination = started(adapter)
        receipts = write_chunks(destination, first())
        if adapter.chunk_waits_for_commit:
            assert_copied(adapter)
        destination.commit_chunks(receipts)
        assert_copied(adapter, first())

    def test_a_crash_before_chunks_are_committed_leaves_no_trace(self, adapter: Adapter) -> None:
        write_chunks(started(adapter), first())
        destination = copying(opened(adapter))
        if adapter.chunk_waits_for_commit:
            assert_copied(adapter)
        copy_chunks(destination, first(), second())
        assert_copied(adapter, *([first()] if adapter.chunk_is_sent else []), first(), second())

    def test_a_chunk_that_fails_midway_leaves_nothing(self, adapter: Adapter) -> None:
        destination = started(adapter)
        broken = ChunkRows(ITEMS, "0", FIRST, error=SnapshotGone("the snapshot has ended"))
        with pytest.raises(SnapshotGone, match="the snapshot has ended"):
            write_chunks(destination, broken)
        if adapter.chunk_is_whole:
            assert_copied(adapter)
        copy_chunks(destination, first())
        assert_copied(adapter, first())

    def test_a_row_that_moved_between_two_snapshots(self, adapter: Adapter) -> None:
        destination = started(adapter)
        copy_chunks(destination, first())
        moved = ChunkRows(ITEMS, "1", [("1", "moved"), ("2", None), ("5", "new")], LATER)
        copy_chunks(destination, moved, again=True)
        if adapter.keeps == "rows":
            last = [("1", "moved"), ("2", None), ("3", "c"), ("5", "new")]
            assert_copied(adapter, ChunkRows(ITEMS, "", last))
        else:
            # Their positions tell which one is the later.
            assert_copied(adapter, first(), moved)

    def test_a_chunk_that_comes_twice_under_a_later_snapshot(self, adapter: Adapter) -> None:
        destination = started(adapter)
        for _ in range(2):
            copy_chunks(destination, ChunkRows(ITEMS, "1", SECOND, LATER), again=True)
            if not adapter.chunk_stands_once:
                break
        assert_copied(adapter, ChunkRows(ITEMS, "1", SECOND, LATER))

    def test_a_copy_that_starts_again(self, adapter: Adapter) -> None:
        destination = started(adapter, NOTES)
        notes = ChunkRows(NOTES, "0", [("1", "note")])
        copy_chunks(destination, first(), notes)
        later = ChunkRows(ITEMS, "0", [("7", "g"), ("1", "z")], LATER)
        for _ in range(2):
            destination.truncate_table(definition(ITEMS))
        if adapter.keeps == "rows":
            assert_copied(adapter, notes)
        copy_chunks(destination, later)
        if isinstance(destination, HoldsTables):
            destination.finish_copy(definition(ITEMS))
        if adapter.chunk_stands_once:
            # Only the table that was named is forgotten.
            copy_chunks(destination, ChunkRows(NOTES, "0", [("1", "note")]))
        if adapter.keeps == "rows":
            assert_copied(adapter, later, notes)
        else:
            assert_copied(adapter, first(), later, notes)

    @pytest.mark.parametrize("how", ["changed", "dropped", "let go"])
    def test_a_table_that_changed_is_copied_anew(self, adapter: Adapter, how: str) -> None:
        """It was not followed meanwhile: it has other columns, or was removed and is added."""
        destination = started(adapter)
        if adapter.keeps != "rows":
            pytest.skip("what is kept for ever is not copied anew")
        needs(destination, HoldsTables)
        tables = cast("HoldsTables", destination)
        destination.truncate_table(definition(ITEMS))
        copy_chunks(destination, first())
        if how == "dropped":
            tables.drop_table(definition(ITEMS))
        elif how == "let go":
            tables.let_go(definition(ITEMS))
        of = WIDER if how == "changed" else ITEMS
        tables.fit_table(definition(of), [definition(ITEMS)])
        destination.prepare([definition(of)])
        assert not tables.has_foreign_rows(definition(of))
        destination.truncate_table(definition(of))
        rows: list[Values] = [("1", "a", "2")] if how == "changed" else [("1", "a"), ("2", "b")]
        copied = ChunkRows(of, "0", rows, LATER)
        copy_chunks(destination, copied)
        found = adapter.rows((of.schema, of.name))
        assert sorted(found.elements()) == sorted(map(frozen, copied.named_rows()))

    def test_copied_rows_of_a_table_without_columns(self, adapter: Adapter) -> None:
        needs_keyless(adapter)
        destination = started(adapter, BARE)
        chunk = ChunkRows(BARE, "0", [()] * 5)
        (receipt,) = write_chunks(destination, chunk)
        assert receipt.rows == 5
        destination.commit_chunks([receipt])
        assert_copied(adapter, chunk)

    def test_an_empty_chunk(self, adapter: Adapter) -> None:
        destination = started(adapter)
        for _ in range(2):
            (receipt,) = write_chunks(destination, ChunkRows(ITEMS, "0", []))
            assert receipt.rows == 0
            destination.commit_chunks([receipt])
        destination.commit_chunks([])
        assert_copied(adapter)
        copy_chunks(destination, second())
        assert_copied(adapter, second())

    def test_copied_texts_of_all_kinds(self, adapter: Adapter) -> None:
        texts = [
            None,
            "",
            " ",
            "\\",
            "\\N",
            "\\.",
            "back\\slash\\",
            "\t\r\n\b\f\x01\x1f\x7f",
            "\n",
            'a"b',
            "é日本🎉",
            "null",
            ("x\ny" * 100_000)[: adapter.longest_text],
        ]
        chunk = ChunkRows(ITEMS, "0", [(str(n), text) for n, text in enumerate(texts)], piece=5)
        destination = started(adapter)
        copy_chunks(destination, chunk)
        assert_copied(adapter, chunk)

    def test_chunks_of_a_stale_driver_are_fenced(self, adapter: Adapter) -> None:
        stale = started(adapter)
        receipts = write_chunks(stale, first())
        current = copying(opened(adapter))
        if not current.capabilities.remembers:
            pytest.skip(f"{current.name} stores nothing that could tell two drivers apart")
        if not adapter.chunk_waits_for_commit:
            pytest.skip(f"{current.name}: a chunk is there once its writer is done")
        with pytest.raises(Fenced, match="taken over"):
            stale.commit_chunks(receipts)
        with pytest.raises(Fenced, match="taken over"):
            stale.truncate_table(definition(ITEMS))
        assert_copied(adapter)
        copy_chunks(current, first())
        assert_copied(adapter, first())

    def test_chunks_leave_the_frontier_as_it_is(
        self, adapter: Adapter, builder: ChangeBuilder
    ) -> None:
        destination = started(adapter)
        with builder.transaction():
            builder.insert(NOTES, "1", "streamed")
        deliver_cut(destination, builder)
        before = destination.committed()
        copy_chunks(destination, first())
        assert destination.committed() == before
        assert opened(adapter).committed() == before

    def test_from_the_first_chunk_to_the_stream(
        self, adapter: Adapter, builder: ChangeBuilder
    ) -> None:
        destination = started(adapter)
        copy_chunks(destination, first(), second())
        for _ in range(2):  # a crash may make it happen again
            if isinstance(destination, HoldsTables):
                destination.finish_copy(definition(ITEMS))
        if isinstance(destination, TakesReplays):
            destination.replaying([ITEMS.oid])
        with builder.transaction():
            builder.update(ITEMS, "1", "changed")
            builder.delete(ITEMS, key=["2", None])
            builder.insert(ITEMS, "9", "new")
        changes = deliver_cut(destination, builder)
        if isinstance(destination, TakesReplays):
            assert not destination.parked_keys(ITEMS.oid)
        for _ in range(2):
            if isinstance(destination, HoldsTables):
                destination.complete_table(definition(ITEMS))
                destination.complete_together({ITEMS.oid}, {ITEMS.oid})
                assert not destination.is_outdated(ITEMS.oid, "what somebody else has noted")
        if adapter.keeps == "rows":
            left: list[Row] = [
                {"id": "1", "name": "changed"},
                {"id": "3", "name": "c"},
                {"id": "4", "name": "d"},
                {"id": "9", "name": "new"},
            ]
            found = adapter.rows((ITEMS.schema, ITEMS.name))
            assert sorted(found.elements()) == sorted(map(frozen, left))
        else:
            assert_delivered(adapter, reference(changes))
            assert adapter.copied_count() == 4
