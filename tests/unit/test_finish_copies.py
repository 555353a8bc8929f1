"""What comes after a table's last chunk, step by step."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from penstock.destination.contract import Capabilities, Receipt
from penstock.destination.memory import MemoryDestination, MemoryOptions, MemoryWriter, forget
from penstock.destination.protocols import TakesReplays
from penstock.metrics.written import JobResult
from penstock.model.errors import TableRefused
from penstock.model.lsn import Frontier
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import TableRows
from penstock.model.table_schema import TableSchema
from penstock.model.table_state import DataSync, Init
from penstock.model.watermarks import Watermarks
from penstock.pipeline.copy.copy_target import CopyTarget
from penstock.pipeline.copy.finish_copies import FinishCopies
from penstock.pipeline.copy.replay import Replay
from penstock.pipeline.run.batch_committer import BatchCommitter
from penstock.pipeline.run.joins import CurrentJoins, Joins
from penstock.pipeline.tables.registry import TableRegistry
from penstock.source.contract import CopySource, ReadKeys
from penstock.source.copy_plan import CopyPlan
from penstock.store import Store
from penstock.transform.floors import Floors
from tests.fix_pipeline import wait_until
from tests.kept_tables import KeptTables
from tests.run_context import Nobody, run_context

TABLE = TableDefinition(7, "public", "items", "d", ())


class Merging(MemoryDestination, KeptTables, TakesReplays):
    """Remembers which tables are not where the others are."""

    capabilities = Capabilities(
        mode="merge", exactly_once=True, remembers=True, atomic=True, batch_age=0.05
    )

    def __init__(self, options: MemoryOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self._last: Watermarks | None = None
        self.replayed: list[Collection[int]] = []

    def committed(self) -> Watermarks | None:
        return self._last

    def commit(self, receipts: Sequence[Receipt], watermarks: Watermarks) -> None:
        super().commit(receipts, watermarks)
        self._last = watermarks

    def catchup_writer(self, tables: Collection[int]) -> MemoryWriter:
        return self.writer()

    def replaying(self, tables: Collection[int]) -> None:
        self.replayed.append(tables)

    def parked_keys(self, table: int) -> Sequence[tuple[str, ...]]:
        return ()

    def settle_parked(self, rows: TableRows, keys: Sequence[tuple[str, ...]]) -> None:
        raise AssertionError("nothing is parked")


class Refusing(TableRegistry):
    """Notes which tables were refused."""

    def __init__(self, refused: list[TableRefused], store: Store) -> None:
        super().__init__(store, merges=True, copies=True)
        self._refused = refused

    def refuse(self, error: TableRefused) -> None:
        self._refused.append(error)


class Finishing:
    """One table with all its chunks, ahead of a stream that has had nothing to commit since."""

    def __init__(self, folder: Path) -> None:
        forget("shop")
        self.destination = Merging(MemoryOptions(), "shop")
        self.destination.open()
        context = run_context("shop", folder, destination=self.destination)
        committer = BatchCommitter(context)
        committer.take_up(Frontier(10, 20), {7}, {7}, {})
        committer.place({7: Frontier(99, 100)})
        self._store = context.store
        self._store.store_table_schemas([TABLE], 0)
        self._store.update_table_state(7, Init())
        self._store.start_copy(7, CopyPlan(7, (), None, ()), 100)
        self._store.update_table_state(7, DataSync())
        self.refused: list[TableRefused] = []
        self.committer = committer
        self.tables = Refusing(self.refused, self._store)
        self.tables.take_part()
        self.joins = CurrentJoins()
        target, nobody = CopyTarget(self.destination), cast("CopySource", Nobody())
        self._finish = FinishCopies(
            self._store,
            target,
            self.tables,
            Replay(context, target, committer, lambda: None),
            nobody,
            self.joins,
        )

    def finish(self) -> str:
        """The table's phase then."""
        self._finish.finish([TABLE])
        state = self._store.get_table_state(7)
        assert state is not None
        return state.phase


@pytest.fixture
def finishing(tmp_path: Path) -> Finishing:
    return Finishing(tmp_path)


def test_the_destination_knows_where_a_table_stands_before_it_joins(finishing: Finishing) -> None:
    """Else a driver that comes next would bring it on from where the others are: what the copy
    has would be applied to it once more."""
    assert finishing.finish() == "sync_done"
    committed = finishing.destination.committed()
    assert committed is not None
    assert committed.behind == {7: Frontier(99, 100)}


def test_a_table_joins_the_query_that_is_under_way(finishing: Finishing) -> None:
    joins = finishing.joins.query = Joins(Floors(10, {}, frozenset({7}), frozenset({7})))
    with ThreadPoolExecutor(1) as pool:
        finished = pool.submit(finishing.finish)
        wait_until(lambda: joins.floors_at(Frontier(10, 20)).tables == {7: 99}, "it asks to join")
        assert finished.result(120) == "sync_done"
    assert finishing.tables.is_delivered(7)
    # The next batches bring it on, from where it stands.
    finishing.committer(JobResult(), Frontier(50, 60))
    assert finishing.committer.standing.at(7) == Frontier(99, 100)
    finishing.committer(JobResult(), Frontier(150, 160))
    assert finishing.committer.standing == Watermarks(Frontier(150, 160))


@pytest.mark.parametrize("step", ["finish_copy", "complete_table"])
def test_the_only_table_may_be_refused(
    finishing: Finishing, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def refuse(table: TableDefinition) -> None:
        raise TableRefused("no", table=table.oid)

    monkeypatch.setattr(finishing.destination, step, refuse)
    assert finishing.finish() != "sync_done"
    assert [error.table for error in finishing.refused] == [7]


def test_rows_of_parked_keys_are_read_some_at_a_time(
    finishing: Finishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are those with large values, and may be all rows of the table."""
    keys = [(str(number),) for number in range(2500)]
    read: list[tuple[str, ...]] = []
    settled: list[tuple[str, ...]] = []

    @contextmanager
    def snapshot() -> Iterator[tuple[int, ReadKeys]]:
        yield 300, read_keys

    def read_keys(table: TableDefinition, asked: Sequence[tuple[str, ...]]) -> TableRows:
        assert settled == read
        assert len(asked) <= 1000
        read.extend(asked)
        schema = TableSchema(table.oid, table.schema, table.name, "d", ())
        return TableRows(schema, (), 0, Frontier(299, 300))

    def settle(_rows: TableRows, found: Sequence[tuple[str, ...]]) -> None:
        settled.extend(found)

    monkeypatch.setattr(finishing._finish, "_source", SimpleNamespace(snapshot_of_now=snapshot))
    monkeypatch.setattr(Replay, "bring_near", lambda *_: None)
    monkeypatch.setattr(Replay, "bring_to", lambda *_: None)
    monkeypatch.setattr(finishing.destination, "settle_parked", settle)
    monkeypatch.setattr(finishing.destination, "parked_keys", lambda _table: keys)
    assert finishing.finish() == "sync_done"
    assert settled == keys


def test_a_table_is_complete_behind_its_last_snapshot_and_with_nothing_parked(
    finishing: Finishing, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []

    @contextmanager
    def snapshot() -> Iterator[tuple[int, ReadKeys]]:
        steps.append("snapshot at 300")
        yield 300, read_keys

    def read_keys(table: TableDefinition, _keys: object) -> TableRows:
        steps.append("parked keys are read")
        schema = TableSchema(table.oid, table.schema, table.name, "d", ())
        return TableRows(schema, (), 0, Frontier(299, 300))

    def near(_replay: Replay, _tables: object, at_least: int = 0) -> None:
        steps.append(f"replayed up to {at_least} at least")

    def to(_replay: Replay, _tables: object, point: int) -> None:
        steps.append(f"replayed up to {point}")

    source = SimpleNamespace(snapshot_of_now=snapshot)
    monkeypatch.setattr(finishing._finish, "_source", source)
    monkeypatch.setattr(Replay, "bring_near", near)
    monkeypatch.setattr(Replay, "bring_to", to)
    for name, result in (("settle_parked", "settled"), ("complete_table", "completed")):
        monkeypatch.setattr(finishing.destination, name, lambda *_, step=result: steps.append(step))
    monkeypatch.setattr(finishing.destination, "parked_keys", lambda _table: [("1",)])
    assert finishing.finish() == "sync_done"
    assert steps == [
        "replayed up to 100 at least",
        "snapshot at 300",
        "replayed up to 300",
        "parked keys are read",
        "settled",
        "completed",
        "replayed up to 0 at least",
    ]
