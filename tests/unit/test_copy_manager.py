"""The copy manager with everything around it replaced."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from penstock.destination.contract import ChunkReceipt
from penstock.destination.discard import DiscardDestination, DiscardOptions
from penstock.metrics.catalogue import COPIED_CHUNKS, COPIED_ROWS, FAILURES
from penstock.metrics.pipeline_metrics import Metrics
from penstock.metrics.written import CopyResult
from penstock.model.errors import (
    BatchAgain,
    DestinationUnavailable,
    PenstockError,
    RowsRefused,
    SnapshotGone,
    StoreUnavailable,
    TableChanged,
    TableRefused,
)
from penstock.model.lsn import Frontier
from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName
from penstock.model.table_state import DataSync, Errored, TableState
from penstock.model.watermarks import Watermarks
from penstock.pipeline.copy.copy_manager import CopyManager
from penstock.pipeline.copy.copy_retries import CopyRetries
from penstock.pipeline.copy.copy_settings import CopySettings
from penstock.pipeline.copy.copy_state import CopyState, Reading
from penstock.pipeline.copy.copy_target import CopyTarget
from penstock.pipeline.copy.copy_units import CopyUnits
from penstock.pipeline.copy.copy_work import CopiesEnd, CopyWork
from penstock.pipeline.run.context import RunContext
from penstock.pipeline.run.engine import TableToCopy
from penstock.pipeline.tables.registry import TableRegistry
from penstock.source.contract import CopyPlans, CopySource
from penstock.source.copy_plan import Chunk, CopyPlan
from penstock.source.postgres.snapshot.snapshot_record import HeldSnapshot
from penstock.store import MemoryStore
from tests.fix_pipeline import wait_until
from tests.run_context import Nobody, run_context

TABLE = TableDefinition(
    7,
    "public",
    "items",
    "d",
    (ColumnDefinition(1, "id", TypeName("pg_catalog", "integer"), not_null=True),),
    primary_key=("id",),
)

SETTINGS = CopySettings(parallelism=2, leaves_room=False, unit_bytes=10, worker="we")


class Snapshots:
    """Hands out one after another."""

    def __init__(self) -> None:
        self.taken = 0
        self.released: set[int] = set()

    def found(self) -> dict[int, HeldSnapshot]:
        return {}

    def take(self) -> tuple[int, HeldSnapshot]:
        self.taken += 1
        return self.taken, HeldSnapshot(f"snapshot {self.taken}", 100 * self.taken, 1, "", "", 1)

    def keep(self) -> None:
        """They stay by themselves."""

    def release(self, number: int) -> None:
        self.released.add(number)


class Positions:
    standing = Watermarks()

    def place(self, tables: Mapping[int, Frontier]) -> None:
        raise AssertionError("an append destination has no table behind the others")

    def free(self, tables: Collection[int]) -> None:
        """Nothing is kept."""


class Finished:
    def __init__(self) -> None:
        self.tables: list[str] = []

    def finish(self, tables: Sequence[TableDefinition]) -> None:
        self.tables += [table.name for table in tables]


CopyUnitNow = Callable[[str, Chunk, bool], None]
"""Copies a chunk under a snapshot; the last says that it was read under another one before."""


class Copies(CopySource):
    """A source with one table. A chunk is opened as the name of the snapshot."""

    snapshots: Snapshots

    def __init__(self, chunks: tuple[Chunk, ...]) -> None:
        self.snapshots = Snapshots()
        self._chunks = chunks

    def define(self, tables: Collection[int]) -> Mapping[int, TableDefinition]:
        return {7: TABLE}

    def plan(self, tables: Sequence[TableDefinition]) -> CopyPlans:
        return CopyPlans({7: CopyPlan(7, ("id",), None, self._chunks)})

    def layout(self, table: TableDefinition) -> Any:
        return None

    def opener(self, snapshot: HeldSnapshot) -> Any:
        return snapshot.name

    def snapshot_of_now(self) -> Any:
        raise AssertionError("no key is parked")

    def retained_bytes(self) -> int | None:
        return None


class Writes(DiscardDestination):
    """The chunk writer is whether the chunk was read before. What it is asked to do with chunks, or
    with a table before them, fails as ``failures`` say, once each.
    """

    def __init__(self, *failures: PenstockError, before: bool = False) -> None:
        super().__init__(DiscardOptions(), "items")
        self._failures = [*failures]
        self._before = before
        self.committed_chunks = 0

    def chunk_writer(self, table: TableDefinition, *, again: bool = False) -> Any:
        return again

    def truncate_table(self, table: TableDefinition) -> None:
        if self._before and self._failures:
            raise self._failures.pop()

    def commit_chunks(self, receipts: Sequence[ChunkReceipt]) -> None:
        if not self._before and self._failures:
            raise self._failures.pop()
        self.committed_chunks += len(receipts)


class CopyEngine(Nobody):
    def __init__(self, copy_unit: CopyUnitNow) -> None:
        self._copy_unit = copy_unit

    def copy_chunks(
        self, chunks: Sequence[Chunk], open_chunk: Any, tables: Mapping[int, TableToCopy]
    ) -> CopyResult:
        (chunk,) = chunks
        self._copy_unit(open_chunk, chunk, bool(tables[7].writer))
        return CopyResult([ChunkReceipt(1, 10)])


def test_a_snapshot_that_is_gone_is_not_used_again() -> None:
    """Though another chunk is still read under it, which began before."""
    chunks = tuple(Chunk(7, number, 7, "public", "items", 1, number, None, 10) for number in (0, 1))
    calls: list[tuple[str, int, bool]] = []
    third = threading.Event()

    def copy_unit(snapshot: str, chunk: Chunk, again: bool) -> None:
        calls.append((snapshot, chunk.number, again))
        if len(calls) > 2:
            third.set()
        elif chunk.number == 0:
            raise SnapshotGone("it has ended")
        else:
            third.wait(120)

    _copied(chunks, copy_unit)
    first, later = calls[:2], calls[2:]
    assert sorted(first) == [("snapshot 1", 0, False), ("snapshot 1", 1, False)]
    assert {call[::2] for call in later} == {("snapshot 2", True)}


def test_a_chunk_in_another_layout_starts_its_table_again() -> None:
    """As one of which a column was dropped since the copy was planned: no person is needed."""
    chunks = (Chunk(7, 0, 7, "public", "items", 1, 0, None, 10),)
    calls: list[str] = []

    def copy_unit(snapshot: str, chunk: Chunk, _again: bool) -> None:
        calls.append(snapshot)
        if len(calls) == 1:
            raise TableChanged("columns gone: c", table=chunk.table)

    counted = _copied(chunks, copy_unit).registry
    assert calls == ["snapshot 1", "snapshot 2"]
    assert counted.total(FAILURES, component="copy", error="TableChanged") == 1
    assert counted.total(COPIED_ROWS, table="public.items") == 1
    assert counted.total(COPIED_CHUNKS, table="public.items") == 1


@pytest.mark.parametrize("before", [False, True], ids=["of a chunk", "before the first"])
def test_a_commit_that_fails_is_made_again(before: bool) -> None:
    """Also where nothing else of the table is under way: nobody else would see that it lacks one,
    and of its snapshots none is left behind.
    """
    chunks = (Chunk(7, 0, 7, "public", "items", 1, 0, None, 10),)
    calls: list[str] = []

    def copy_unit(snapshot: str, chunk: Chunk, _again: bool) -> None:
        calls.append(snapshot)

    failures = (
        DestinationUnavailable("as the test wants it", remedy=""),
        BatchAgain("as the test wants it"),
    )
    destination, source = Writes(*failures, before=before), Copies(chunks)
    counted = _copied(chunks, copy_unit, destination, source).registry
    assert calls == (["snapshot 3"] if before else ["snapshot 1"] * 3)
    assert destination.committed_chunks == 1
    assert source.snapshots.released >= set(range(1, source.snapshots.taken))
    assert counted.total(COPIED_CHUNKS, table="public.items") == 1
    for failure in ("DestinationUnavailable", "BatchAgain"):
        assert counted.total(FAILURES, component="copy", error=failure) == 1


def test_a_table_whose_chunk_is_refused_is_set_aside() -> None:
    """When it is committed, after it was written; the copies of others go on."""
    chunks = (Chunk(7, 0, 7, "public", "items", 1, 0, None, 10),)
    destination = Writes(TableRefused("as the test wants it", remedy="none", table=7))
    with _copying(lambda *_: None, destination, Copies(chunks)) as (manager, context, _):

        def is_refused() -> bool:
            manager.check()
            return isinstance(context.store.get_table_states()[7], Errored)

        wait_until(is_refused, "the table is set aside")
        manager.check()
    assert destination.committed_chunks == 0


def test_of_a_unit_with_a_refused_table_the_others_are_copied_though_the_store_was_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody else would see that their chunks lack."""
    other = replace(TABLE, oid=8, name="others")
    store = MemoryStore("items")
    store.open()
    tables = TableRegistry(store, merges=False, copies=True)
    tables.enrol([TABLE, other], 0)
    chunks = [Chunk(oid, 0, oid, "public", "items", 1, 0, None, 1) for oid in (7, 8)]
    store.start_copies({c.table: CopyPlan(c.table, (), None, (c,)) for c in chunks}, 100)
    store.update_table_states({7: DataSync(), 8: DataSync()})

    class Refuses(Nobody):
        def copy_chunks(self, *_: object) -> CopyResult:
            raise TableRefused("no", table=7)

    context = run_context("items", store=store, destination=Writes(), engine=Refuses())
    work = CopyWork(Copies(()), CopyTarget(context.destination), Finished(), CopiesEnd())
    state = CopyState(store, tables, Positions(), SETTINGS)
    state.readings[1] = Reading(1, Snapshots().take()[1], {7, 8})
    state.queue.add(chunks)
    retries = CopyRetries(context.metrics, threading.Event())
    with ThreadPoolExecutor(1) as pool:
        units = CopyUnits(context, work, SETTINGS, state, retries, pool)
        assert units.hand_out()
    with monkeypatch.context() as patched:
        patched.setattr(store, "update_table_state", _away)
        with pytest.raises(StoreUnavailable):
            units.collect()
    unit = state.queue.take()
    assert unit is not None
    assert unit.chunks == (chunks[1],)


def _away(*_: object) -> None:
    raise StoreUnavailable("away")


def test_a_table_whose_rows_the_source_does_not_give_is_set_aside() -> None:
    """As where a right was taken away since the copy was planned, or a condition does not suit all
    rows: the others go on.
    """
    chunks = (Chunk(7, 0, 7, "public", "items", 1, 0, None, 10),)

    def copy_unit(*_: object) -> None:
        raise RowsRefused("division by zero", remedy="See.", sqlstate="22012", table=7)

    with _copying(copy_unit, Writes(), Copies(chunks)) as (manager, context, _):

        def state() -> TableState | None:
            manager.check()
            found = context.store.get_table_states()[7]
            return found if isinstance(found, Errored) else None

        found = wait_until(state, "the table is set aside")
        assert isinstance(found, Errored)
        assert found.reason == "division by zero"
        assert found.solution == "See; then run `penstock tables retry` for public.items"


def _copied(
    chunks: tuple[Chunk, ...],
    copy_unit: CopyUnitNow,
    destination: Writes | None = None,
    source: Copies | None = None,
) -> Metrics:
    """Returns when the table is copied."""
    destination, source = destination or Writes(), source or Copies(chunks)
    with _copying(copy_unit, destination, source) as (manager, context, finished):

        def is_finished() -> bool:
            manager.check()
            return bool(finished.tables)

        wait_until(is_finished, "the table is finished")
    return context.metrics


@contextmanager
def _copying(
    copy_unit: CopyUnitNow, destination: Writes, source: Copies
) -> Iterator[tuple[CopyManager, RunContext, Finished]]:
    context = run_context("items", destination=destination, engine=CopyEngine(copy_unit))
    tables = TableRegistry(context.store, merges=False, copies=True)
    tables.enrol([TABLE], 0)
    tables.take_part()
    finished = Finished()
    work = CopyWork(source, CopyTarget(destination), finished, CopiesEnd())
    manager = CopyManager(context, tables, Positions(), work, SETTINGS)
    manager.start()
    try:
        yield manager, context, finished
    finally:
        manager.stop()
