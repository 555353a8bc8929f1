"""Keeps the current rows of every table, or every change, in a Delta table of its own."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from penstock.destination.contract import Capabilities
from penstock.destination.delta.chunk_files import DeltaChunks
from penstock.destination.delta.commits import PipelineCommits
from penstock.destination.delta.delta_rs import delta_rs
from penstock.destination.delta.ledger import ControlTable
from penstock.destination.delta.merging import Key, merge_rows, put_rows
from penstock.destination.delta.options import DeltaOptions
from penstock.destination.delta.places import BucketPlace, DeltaPlace, delta_place
from penstock.destination.delta.tables import TYPES, DeltaAlteration, arrow_schema, create_table
from penstock.destination.families.staged_merge.arrow_sums import arrow_sum
from penstock.destination.families.staged_merge.destination import StagedMergeDestination
from penstock.destination.families.staged_merge.joined_rows import MergedRows
from penstock.destination.families.staged_merge.object_stage import ObjectStage, chosen_stage
from penstock.destination.families.staged_merge.receipt import Mark, StagedChunk
from penstock.destination.families.staged_merge.stage import FileStage
from penstock.destination.families.staged_merge.typed_columns import ColumnTyping
from penstock.destination.families.table_folders import folder_name
from penstock.destination.families.target import Target
from penstock.destination.protocols import CopiedByWorkers, TableSum, Verifiable
from penstock.failpoints import failpoint
from penstock.model.errors import (
    BatchAgain,
    DestinationError,
    DestinationUnavailable,
    refused_alone,
)
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TableDefinition

if TYPE_CHECKING:
    from deltalake import DeltaTable

_HOUR = 3600

_log = logging.getLogger(__name__)


class DeltaDestination(StagedMergeDestination, CopiedByWorkers, Verifiable):
    """Each table is committed for itself, with its mark; the control table follows."""

    name = "delta"
    options_model = DeltaOptions
    capabilities = Capabilities(
        mode="merge", exactly_once=True, remembers=True, atomic=False, batch_age=10.0
    )
    side_by_side = 4
    failpoints = ("delta.table_committed", "delta.copy_loaded")

    def __init__(self, options: DeltaOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self.capabilities = replace(self.capabilities, mode=options.mode)
        self._root = delta_place(options.path, options.revealed_path_options)
        self._pinned: dict[int, DeltaTable] = {}
        self._transactions = PipelineCommits(pipeline)
        self.typing = ColumnTyping(TYPES, options.unfit)
        every = options.maintenance.every
        self.maintenance_every = math.inf if every == "never" else every

    @cached_property
    def stage(self) -> FileStage:
        below, name = self._root.child("_penstock_stage"), folder_name(self.pipeline)
        if self.options.stage is None and isinstance(below, BucketPlace):
            return ObjectStage(below.child(name).bucket)
        return chosen_stage(self.name, self.options, Path(below.url), name)

    @cached_property
    def ledger(self) -> ControlTable:
        return ControlTable(self._root, self.pipeline, self._transactions)

    def check(self) -> Sequence[str]:
        delta_rs()
        self._root.expect_writable()
        self.stage.expect_writable(self.name)
        return ()

    def open(self) -> None:
        with self._lock:
            super().open()
            for target in self._all_places():
                self._fence(target)

    def _fence(self, target: Target) -> None:
        folder, commits = self._folder(target), self._transactions
        with self._unless_broken(folder):
            table = folder.found()
            if table is None or not commits.is_signed(commits.expect_current(table)):
                return  # somebody else's: in the place of what was moved away, or of a new name
            known = commits.read(table, "oid")
            commits.sign(table, target.oid if known is None else known)

    @contextmanager
    def _unless_broken(self, folder: DeltaPlace) -> Iterator[None]:
        """A table that is gone or cannot be read is left alone: it is refused once rows come to it,
        and keeps no other one waiting.
        """
        try:
            with self._transactions.explained(folder):
                yield
        except (BatchAgain, DestinationUnavailable):
            raise
        except DestinationError as error:
            _log.warning(error.message, extra={"event": "table_broken"})

    def _folder(self, target: Target) -> DeltaPlace:
        return self._root.of(target)

    def held(self, target: Target) -> Mark | None:
        table = self._found(target)
        return None if table is None else self._transactions.held(table)

    def _found(self, target: Target) -> DeltaTable | None:
        """The table, None where it is not there or cannot be read."""
        folder, found = self._folder(target), None
        with self._unless_broken(folder):
            found = self._transactions.find(folder, target.oid)
        return found  # noqa: RET504 (also where the block was left)

    # -- tables ----------------------------------------------------------------------------------

    def create(self, table: TableDefinition, target: Target) -> None:
        folder = self._folder(target)
        with refused_alone(target.oid), self._transactions.explained(folder):
            create_table(folder, target, self._transactions)

    def drop(self, target: Target) -> None:
        """Also what is left of a table that can be read no more; not another one."""
        folder = self._folder(target)
        with self._unless_broken(folder):
            if self._transactions.has_another(folder, target.oid):
                return
        folder.remove()

    def alter(self, change: TableChange, before: Target, after: Target) -> None:
        assert self.typing is not None  # noqa: S101
        with refused_alone(after.oid):
            DeltaAlteration(
                self._root, change, before, after, self.typing, self._transactions
            ).run()

    def empty(self, target: Target) -> None:
        folder = self._folder(target)
        with refused_alone(target.oid), self._transactions.explained(folder):
            delta_rs().write_deltalake(
                self._transactions.table(folder),
                arrow_schema(target).empty_table(),
                mode="overwrite",
                commit_properties=self._transactions.properties({}),
            )

    def is_there(self, target: Target) -> bool:
        return self._found(target) is not None

    def has_rows(self, target: Target) -> bool:
        table = self._found(target)
        return table is not None and table.count() > 0

    # -- rows ------------------------------------------------------------------------------------

    def apply(self, rows: MergedRows, at: Mark) -> Sequence[Key]:
        folder = self._folder(rows.target)
        with refused_alone(rows.target.oid), self._transactions.explained(folder):
            properties = self._transactions.properties(self._transactions.marks(at))
            park = partial(self.park, rows.target)
            parked = merge_rows(self._transactions.table(folder), folder, rows, properties, park)
        failpoint("delta.table_committed")
        return parked

    def load(self, target: Target, rows: pa.Table, *, over: bool) -> None:
        folder = self._folder(target)
        with refused_alone(target.oid), self._transactions.explained(folder):
            table = self._transactions.table(folder)
            put_rows(table, target, rows, self._transactions.properties({}))

    def chunk_stage(self, target: Target) -> DeltaChunks:
        return self._folder(target).chunks(target.columns)

    def loaded(self, target: Target) -> int | None:
        table = self._found(target)
        return None if table is None else self._transactions.read(table, "loaded")

    def load_chunk(self, target: Target, chunk: StagedChunk) -> None:
        if not chunk.rows:
            return
        folder, files = self._folder(target), self.chunk_stage(target)
        with refused_alone(target.oid), self._transactions.explained(folder):
            table = self._transactions.table(folder)
            properties = self._transactions.properties({"loaded": chunk.mark})
            if chunk.again and target.key:
                put_rows(table, target, files.get(chunk.file), properties)
            else:
                table.create_write_transaction(
                    [files.action(chunk.file, chunk.rows)],
                    mode="append",
                    schema=table.schema(),
                    commit_properties=properties,
                )
        failpoint("delta.copy_loaded")

    # -- verify ----------------------------------------------------------------------------------

    @contextmanager
    def pinned(self) -> Iterator[None]:
        found = {oid: self._found(target) for oid, target in self._known().items()}
        self._pinned = {oid: table for oid, table in found.items() if table is not None}
        yield
        self._pinned.clear()

    def table_sum(self, table: TableDefinition) -> TableSum | None:
        target, there = Target.of(table), self._pinned.get(table.oid)
        if there is None or self._known().get(table.oid) != target:
            return None
        if {*target.columns} - {field.name for field in there.schema().fields}:
            return None
        with self._transactions.explained(self._folder(target)):
            return arrow_sum(target, there.to_pyarrow_dataset().to_batches())

    # -- maintenance -----------------------------------------------------------------------------

    def maintain(self, target: Target) -> None:
        self._maintain(self._folder(target))

    def maintain_rest(self) -> None:
        self._maintain(self.ledger.folder)

    def _maintain(self, folder: DeltaPlace) -> None:
        """OPTIMIZE and VACUUM."""
        hours = math.ceil(self.options.maintenance.keep_files / _HOUR)
        with self._transactions.explained(folder):
            table = self._transactions.table(folder)
            table.optimize.compact(commit_properties=self._transactions.properties({}))
            table = self._transactions.table(folder)
            table.vacuum(
                retention_hours=hours,
                dry_run=False,
                enforce_retention_duration=False,
                commit_properties=self._transactions.properties({}),
            )
            table.cleanup_metadata()
