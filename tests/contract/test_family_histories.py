"""Members of the families that hold rows, under random histories: crashes, copies, other keys."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.decode.changes import ChangeSet
from penstock.destination.families.kept_tables import KeptTables
from penstock.destination.protocols import TakesReplays
from penstock.model.lsn import Frontier
from penstock.model.watermarks import Watermarks
from penstock.testing import Adapter
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, table
from penstock.testing.contract.chunk_rows import ChunkRows, Values, copy_chunks
from penstock.testing.contract.deliveries import definition, deliver, reference
from penstock.testing.merge_model import FrozenRow, MergeModel
from tests.contract.test_delta import DeltaAdapter
from tests.contract.test_ducklake import DucklakeAdapter, DucklakeLatest, DucklakeWindowed
from tests.contract.test_iceberg import (
    ByPosition,
    IcebergAdapter,
    Partitioned,
    PartitionedByPosition,
)
from tests.contract.test_memory_tables import InSlices, MemoryTablesAdapter
from tests.contract.test_memory_versioned import MemoryVersionedAdapter
from tests.row_histories import (
    ALL,
    Batch,
    Key,
    KeyedHistory,
    KeyedKind,
    KeylessHistory,
    Step,
    batches,
    steps,
)

PAIR = table(
    "pair",
    Column("a", "text", key=True),
    Column("b", "text", key=True),
    Column("x", "text"),
    Column("y", "text"),
)
LOOSE = table("loose", Column("a", "text"), Column("b", "text"), identity="f")
NAME = (PAIR.schema, PAIR.name)
KIND = KeyedKind(PAIR, [("a", "1"), ("a/", "1"), ("a", "~1"), ("b", "2")], [None, "", "v", "w"])
Member = (
    MemoryTablesAdapter | MemoryVersionedAdapter | DucklakeAdapter | DeltaAdapter | IcebergAdapter
)
MEMBERS: dict[str, Callable[[Path], Member]] = {
    "tables": MemoryTablesAdapter,
    "slices": InSlices,
    "versioned": MemoryVersionedAdapter,
    "ducklake": DucklakeAdapter,
    "ducklake latest": DucklakeLatest,
    "ducklake latest by windows": DucklakeWindowed,
    "delta": DeltaAdapter,
    "iceberg": IcebergAdapter,
    "iceberg by position": ByPosition,
    "iceberg partitioned": Partitioned,
    "iceberg partitioned, by position": PartitionedByPosition,
}

pytestmark = pytest.mark.parametrize(
    "member",
    [
        "tables",
        "slices",
        "versioned",
        # Real engines take their time.
        pytest.param("ducklake", marks=pytest.mark.release),
        pytest.param("ducklake latest", marks=pytest.mark.release),
        pytest.param("ducklake latest by windows", marks=pytest.mark.release),
        pytest.param("delta", marks=pytest.mark.release),
        pytest.param("iceberg", marks=pytest.mark.release),
        pytest.param("iceberg by position", marks=pytest.mark.release),
        pytest.param("iceberg partitioned", marks=pytest.mark.release),
        pytest.param("iceberg partitioned, by position", marks=pytest.mark.release),
    ],
)


def _history(plan: Sequence[Step]) -> list[Batch]:
    builder = ChangeBuilder()
    return batches(plan, KeyedHistory(KIND, builder), builder)


def _runs(of: Sequence[Batch]) -> list[ChangeSet]:
    return [run for batch in of for task in batch.tasks for run in task]


def _expected(of: Sequence[Batch]) -> Counter[FrozenRow]:
    return rows_left(_runs(of))


def _opened(adapter: Adapter) -> KeptTables:
    destination = adapter.make()
    destination.open()
    destination.prepare([definition(PAIR), definition(LOOSE)])
    assert isinstance(destination, KeptTables)
    return destination


class Place:
    """A folder for one example."""

    def __init__(self, member: str) -> None:
        self._folder = Path(tempfile.mkdtemp())
        self.adapter = MEMBERS[member](self._folder)

    def __enter__(self) -> Adapter:
        return self.adapter

    def __exit__(self, *_: object) -> None:
        self.adapter.close()
        shutil.rmtree(self._folder)


@settings(max_examples=60)
@given(plan=steps(40, (*ALL, "truncate")))
def test_any_history(member: str, plan: list[Step]) -> None:
    history = _history(plan)
    with Place(member) as adapter:
        destination = _opened(adapter)
        for number, batch in enumerate(history):
            deliver(destination, Frontier(number, number), *batch.tasks)
        assert adapter.rows(NAME) == _expected(history)


@settings(max_examples=60)
@given(plan=steps(30, (*ALL, "truncate")), cut=st.integers(0, 100), part=st.integers(0, 100))
def test_batches_that_come_again(member: str, plan: list[Step], cut: int, part: int) -> None:
    """A driver dies after some tasks of a batch, or between their work and the commit."""
    history = _history(plan)
    dies = cut % len(history)
    with Place(member) as adapter:
        destination = _opened(adapter)
        for number, batch in enumerate(history):
            if number == dies:
                runs = [run for task in batch.tasks for run in task]
                destination.writer().write(runs[: part % (len(runs) + 1)])
                destination = _opened(adapter)
            deliver(destination, Frontier(number, number), *batch.tasks)
        assert adapter.rows(NAME) == _expected(history)


@settings(max_examples=120)
@given(plan=steps(40, ALL), read=st.integers(0, 39))
def test_rows_are_copied_while_they_change(member: str, plan: list[Step], read: int) -> None:
    """The first snapshot is taken after ``read`` steps."""
    builder = ChangeBuilder()
    history = KeyedHistory(KIND, builder)
    runs, frontiers = [], [Frontier(0, 0)]
    for step in plan:
        with builder.transaction():
            history.step(step)
        runs.append(builder.cut())
        frontiers.append(builder.frontier)
    read = min(read, len(runs))
    then = _rows_after(runs[:read])
    with Place(member) as adapter:
        destination = _opened(adapter)
        destination.truncate_table(definition(PAIR))
        _copy_then_replay(destination, then, runs, frontiers, read)
        assert adapter.rows(NAME) == rows_left(runs)


def _copy_then_replay(
    destination: KeptTables,
    early: Mapping[Key, Values],
    runs: Sequence[ChangeSet],
    frontiers: Sequence[Frontier],
    read: int,
) -> None:
    """Some rows are read under the first snapshot, others under a later one: at the end."""
    assert isinstance(destination, TakesReplays)
    late = _rows_after(runs)
    first = [row for number, row in enumerate(early.values()) if number % 2]
    others = set(KIND.keys) - {(row[0], row[1]) for row in first}
    rest = [row for key, row in late.items() if key in others]
    copy_chunks(destination, ChunkRows(PAIR, "0", first, frontiers[read]))
    copy_chunks(destination, ChunkRows(PAIR, "1", rest, frontiers[-1]), again=True)
    destination.finish_copy(definition(PAIR))
    destination.replaying([PAIR.oid])
    for start in range(read, len(runs), 4):
        writer = destination.catchup_writer([PAIR.oid])
        some = runs[start : start + 4]
        receipts = [writer.write(some[:2]), writer.write(some[2:3]), writer.write(some[3:])]
        destination.commit(receipts, Watermarks(Frontier(start + 1, start + 1)))
    parked = destination.parked_keys(PAIR.oid)
    found = [late[key] for key in parked if key in late]
    read_again = next(iter(ChunkRows(PAIR, "", found, frontiers[-1], piece=100).texts()))
    destination.settle_parked(read_again, parked)
    assert not destination.parked_keys(PAIR.oid)
    destination.replaying([])


def _rows_after(runs: Sequence[ChangeSet]) -> dict[Key, Values]:
    rows = [dict(row) for row in rows_left(runs)]
    return {
        (str(row["a"]), str(row["b"])): tuple(row[column.name] for column in PAIR.columns)
        for row in rows
    }


@settings(max_examples=40)
@given(plan=steps(30, ("insert", "insert", "update", "delete", "truncate")))
def test_rows_without_a_key_are_counted(member: str, plan: list[Step]) -> None:
    if member in ("versioned", "delta"):
        pytest.skip("a change of such a row refuses the table")
    if member.startswith("ducklake latest"):
        pytest.skip("change tables of such tables have no view")
    builder = ChangeBuilder()
    history = batches(plan, KeylessHistory(LOOSE, [None, "", "v"], builder), builder)
    name = (LOOSE.schema, LOOSE.name)
    model = MergeModel({name: []})
    model.apply(reference(*_runs(history)))
    with Place(member) as adapter:
        destination = _opened(adapter)
        for number, batch in enumerate(history):
            deliver(destination, Frontier(number, number), *batch.tasks)
        assert adapter.rows(name) == model.rows(name)


def test_rows_that_exchange_their_keys_in_one_task(member: str) -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(PAIR, "a", "1", "one", "first")
        builder.insert(PAIR, "b", "2", "two", "second")
    runs = [builder.cut()]
    with builder.transaction():
        builder.update(PAIR, "c", "3", "one", UNSET, key=["a", "1", None, None])
        builder.update(PAIR, "a", "1", "two", UNSET, key=["b", "2", None, None])
        builder.update(PAIR, "b", "2", "one", UNSET, key=["c", "3", None, None])
    runs.append(builder.cut())
    with builder.transaction():
        builder.update(PAIR, "a", "1", "three", UNSET)
    runs.append(builder.cut())
    with Place(member) as adapter:
        destination = _opened(adapter)
        deliver(destination, Frontier(1, 1), runs[:1])
        deliver(destination, Frontier(2, 2), runs[1:2], runs[2:])
        assert set(_rows_after(runs).values()) == {
            ("a", "1", "three", "second"),
            ("b", "2", "one", "first"),
        }
        assert adapter.rows(NAME) == rows_left(runs)


def rows_left(runs: Sequence[ChangeSet]) -> Counter[FrozenRow]:
    model = MergeModel({NAME: ["a", "b"]})
    model.apply(reference(*runs))
    return model.rows(NAME)
