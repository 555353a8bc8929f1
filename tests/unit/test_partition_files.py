"""Partitions that were emptied by themselves, with everything around replaced."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from penstock.metrics.written import JobResult, Written
from penstock.model.lsn import Frontier
from penstock.model.schema_policy import Action, SchemaPolicy
from penstock.model.table_state import Errored, Ready
from penstock.pipeline.run.batch_committer import BatchCommitter
from penstock.pipeline.tables.partition_files import PartitionFiles, changed_leaves
from penstock.pipeline.tables.registry import TableRegistry
from penstock.source.contract import LeafFile
from penstock.source.copy_plan import Chunk, CopyPlan
from tests.run_context import run_context
from tests.unit.test_copy_manager import TABLE

OLD, NEW = 100, 200
"""A partition that was there when the table was copied, with file 7, and a later one."""


def plan() -> CopyPlan:
    return CopyPlan(TABLE.oid, (), None, (Chunk(TABLE.oid, 0, OLD, "s", "t", 7, 0, None, 0),))


def test_which_files_are_others() -> None:
    as_they_were = {OLD: LeafFile(7, 1), NEW: LeafFile(NEW, 2)}
    assert changed_leaves(plan(), as_they_were) == {}
    later = {OLD: LeafFile(8, 3), NEW: LeafFile(9, 4)}
    assert changed_leaves(plan(), later) == later


class Look:
    """A table that is ready, whose partitions can be given other files."""

    def __init__(self, folder: Any, *, copy: bool = True) -> None:
        self.leaves = {OLD: LeafFile(7, 1), NEW: LeafFile(NEW, 2)}
        self.wal = 50
        session = SimpleNamespace(
            leaf_files=lambda tables: dict.fromkeys(tables, self.leaves), position=lambda: self.wal
        )
        context = run_context("items", folder, session=session, source_keys={"copy": copy})
        self.store = context.store
        self.tables = TableRegistry(self.store, merges=True, copies=copy)
        self.tables.enrol([TABLE], 0)
        if copy:
            self.store.start_copy(TABLE.oid, plan(), 10)
            self.store.update_table_states({TABLE.oid: Ready()})
        self.tables.take_part()
        self.committer = BatchCommitter(context)
        self.committer.is_unsure = False
        self.files = PartitionFiles(context, self.tables, self.committer)

    def change(self, leaves: dict[int, LeafFile]) -> None:
        self.leaves |= leaves
        self.wal += 10

    def deliver(self, *truncates: tuple[int, int]) -> None:
        """A batch up to where the source is."""
        written = Written(truncates=frozenset(truncates))
        self.committer(JobResult(written=written), Frontier(self.wal, self.wal))

    def __call__(self) -> str | None:
        """What is wished for the table after a look."""
        self.files.look()
        return self.store.get_wish(TABLE.oid)


def test_an_emptied_partition_has_its_table_copied_anew(tmp_path: Any) -> None:
    look = Look(tmp_path)
    assert look() is None
    look.change({NEW: LeafFile(9, 77)})
    assert look() is None, "the stream may still tell of it"
    look.deliver()
    assert look() == "resync"


def test_what_the_stream_told_of_needs_no_copy(tmp_path: Any) -> None:
    look = Look(tmp_path)
    look.change({OLD: LeafFile(8, 77), NEW: LeafFile(9, 77)})
    assert look() is None
    look.deliver((TABLE.oid, 77))
    assert look() is None
    copy = look.store.get_copy(TABLE.oid)
    assert copy is not None
    assert copy.plan.leaf_files == {OLD: 8, NEW: 9}, "also for the next run"
    # The same partition, by itself, and a TRUNCATE of another table.
    look.change({OLD: LeafFile(10, 78)})
    assert look() is None
    look.deliver((TABLE.oid + 1, 78))
    assert look() == "resync"


@pytest.mark.parametrize(("action", "state"), [("ignore", Ready), ("stop", Errored)])
def test_what_the_pipeline_file_says_of_partitions(
    tmp_path: Any, action: Action, state: type[object]
) -> None:
    look = Look(tmp_path)
    look.files._policy = SchemaPolicy(kinds={"partitions": action})
    look.change({OLD: LeafFile(8, 77)})
    look()
    look.deliver()
    assert look() is None
    assert isinstance(look.store.get_table_state(TABLE.oid), state)


def test_without_copies_it_is_told(tmp_path: Any, caplog: pytest.LogCaptureFixture) -> None:
    look = Look(tmp_path, copy=False)
    look.change({OLD: LeafFile(8, 77)})
    assert look() is None, "nobody knows what it was before"
    look.change({OLD: LeafFile(9, 78)})
    look()
    look.deliver()
    with caplog.at_level("WARNING", "penstock"):
        assert look() is None
        look()
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith(f"table {TABLE.qualified_name}: a partition was emptied (TRUNCATE) or ")
    assert told.endswith("; its rows stay at the destination")
