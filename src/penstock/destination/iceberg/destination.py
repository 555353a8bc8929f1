"""Keeps the current rows of every table, or every change, in an Iceberg table of its own."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa
from pyiceberg.table import Table

from penstock.destination.contract import Capabilities
from penstock.destination.families import durable
from penstock.destination.families.staged_merge.arrow_sums import arrow_sum
from penstock.destination.families.staged_merge.destination import StagedMergeDestination
from penstock.destination.families.staged_merge.joined_rows import MergedRows
from penstock.destination.families.staged_merge.object_stage import chosen_stage
from penstock.destination.families.staged_merge.receipt import Mark, StagedChunk
from penstock.destination.families.staged_merge.stage import FileStage
from penstock.destination.families.staged_merge.typed_columns import ColumnTyping
from penstock.destination.families.table_folders import folder_name
from penstock.destination.families.target import Target
from penstock.destination.iceberg.catalog import Identifier, TableCatalog, identifier_of
from penstock.destination.iceberg.chunk_files import IcebergChunkFiles, storage_properties
from penstock.destination.iceberg.columns import TYPES
from penstock.destination.iceberg.commits import IcebergCommits
from penstock.destination.iceberg.expiry import expire_older
from penstock.destination.iceberg.ledger import IcebergControlTable
from penstock.destination.iceberg.live_rows import LiveRows
from penstock.destination.iceberg.merging import Key, Merge
from penstock.destination.iceberg.options import IcebergOptions
from penstock.destination.iceberg.rewriting import compacted
from penstock.destination.iceberg.snapshots import Change, entries_of
from penstock.destination.iceberg.tables import IcebergAlteration, create_table
from penstock.destination.protocols import CopiedByWorkers, TableSum, Verifiable
from penstock.failpoints import failpoint
from penstock.model.errors import refused_alone
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TableDefinition

_KEEP_NOTES = 60.0


class IcebergDestination(StagedMergeDestination, CopiedByWorkers, Verifiable):
    """Each table is committed for itself, with its mark; the control table follows."""

    name = "iceberg"
    options_model = IcebergOptions
    capabilities = Capabilities(
        mode="merge", exactly_once=True, remembers=True, atomic=False, batch_age=30.0
    )
    side_by_side = 4
    failpoints = ("iceberg.table_committed", "iceberg.copy_loaded")

    def __init__(self, options: IcebergOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self.capabilities = replace(self.capabilities, mode=options.mode)
        self._tables = TableCatalog(options)
        self._pinned: dict[int, Table | None] = {}
        self._transactions = IcebergCommits(self._tables, pipeline)
        self.typing = ColumnTyping(TYPES, options.unfit)
        every = options.maintenance.every
        self.maintenance_every = math.inf if every == "never" else every

    @cached_property
    def stage(self) -> FileStage:
        # Where the warehouse is no folder, the options say where the stage is.
        below = (self.options.local_warehouse or Path()) / "_penstock_stage"
        return chosen_stage(self.name, self.options, below, folder_name(self.pipeline))

    @cached_property
    def ledger(self) -> IcebergControlTable:
        return IcebergControlTable(self._transactions, self.pipeline)

    def check(self) -> Sequence[str]:
        self.stage.expect_writable(self.name)
        folders = []
        if (warehouse := self.options.local_warehouse) is not None:
            folders.append(warehouse)
        if self.options.catalog_file is not None:
            folders.append(Path(self.options.catalog_file).absolute().parent)
        durable.expect_writable(self.name, *folders)
        self._tables.probe()
        return ()

    def open(self) -> None:
        with self._lock:
            super().open()
            for target in self._all_places():
                self._fence(target)

    def _fence(self, target: Target) -> None:
        identifier = identifier_of(target)
        with self._transactions.explained(identifier):
            table = self._transactions.find(identifier)
            if table is not None and self._transactions.is_signed(table):
                known = self._transactions.state(table).oid
                self._transactions.sign(table, known or target.oid)

    def held(self, target: Target) -> Mark | None:
        table = self._transactions.own(identifier_of(target), target.oid)
        return None if table is None else self._transactions.state(table).mark

    def close(self) -> None:
        super().close()
        self._tables.close()

    # -- tables ----------------------------------------------------------------------------------

    def create(self, table: TableDefinition, target: Target) -> None:
        with refused_alone(target.oid), self._transactions.explained(identifier_of(target)):
            create_table(self._transactions, table, target, self._partitioning(target))

    def _partitioning(self, target: Target) -> Sequence[str]:
        found: Sequence[str] = self.options.partition.get(target.qualified_name, ())
        return found

    def drop(self, target: Target) -> None:
        """Not another one that has its name."""
        identifier = identifier_of(target)
        with self._transactions.explained(identifier):
            if self._transactions.own(identifier, target.oid) is not None:
                self._tables.catalog.purge_table(identifier)

    def alter(self, change: TableChange, before: Target, after: Target) -> None:
        assert self.typing is not None  # noqa: S101
        with refused_alone(after.oid), self._transactions.explained(identifier_of(after)):
            IcebergAlteration(self._transactions, change, before, after, self.typing).run()

    def empty(self, target: Target) -> None:
        self._commit(target, lambda merge: merge.emptied())

    def is_there(self, target: Target) -> bool:
        return self._transactions.own(identifier_of(target), target.oid) is not None

    def has_rows(self, target: Target) -> bool:
        table = self._transactions.own(identifier_of(target), target.oid)
        return table is not None and bool(entries_of(table))

    # -- rows ------------------------------------------------------------------------------------

    def apply(self, rows: MergedRows, at: Mark) -> Sequence[Key]:
        identifier = identifier_of(rows.target)
        with refused_alone(rows.target.oid), self._transactions.explained(identifier):
            table = self._transactions.table(identifier)
            change, parked = Merge(table, rows.target, self.options.deletes).apply(rows)
            self.park(rows.target, parked)
            self._transactions.commit(table, change, self._transactions.state(table).marked(at))
        failpoint("iceberg.table_committed")
        return parked

    def load(self, target: Target, rows: pa.Table, *, over: bool) -> None:
        rows = rows.rename_columns(list(target.columns))
        if rows.num_rows:
            self._commit(target, lambda merge: merge.put(rows))

    def chunk_stage(self, target: Target) -> IcebergChunkFiles:
        table = self._transactions.tables.find(identifier_of(target))
        if table is None:
            raise self._transactions.gone(identifier_of(target))
        properties = storage_properties(table.io.properties)
        return IcebergChunkFiles(properties, table.location(), table.schema(), table.spec(), target)

    def loaded(self, target: Target) -> int | None:
        table = self._transactions.own(identifier_of(target), target.oid)
        return None if table is None else self._transactions.state(table).loaded

    def load_chunk(self, target: Target, chunk: StagedChunk) -> None:
        if not chunk.rows:
            return
        identifier = identifier_of(target)
        with refused_alone(target.oid), self._transactions.explained(identifier):
            table = self._transactions.table(identifier)
            state = self._transactions.state(table)
            if chunk.again and target.key:
                rows = self.chunk_stage(target).get(chunk.file)
                change = Merge(table, target, self.options.deletes).put(rows)
            else:
                change = Change(self.chunk_stage(target).files(chunk.file))
            self._transactions.commit(table, change, replace(state, loaded=chunk.mark))
        failpoint("iceberg.copy_loaded")

    def _commit(self, target: Target, make: Callable[[Merge], Change]) -> None:
        identifier = identifier_of(target)
        with refused_alone(target.oid), self._transactions.explained(identifier):
            table = self._transactions.table(identifier)
            change = make(Merge(table, target, self.options.deletes))
            self._transactions.commit(table, change, self._transactions.state(table))

    # -- verify ----------------------------------------------------------------------------------

    @contextmanager
    def pinned(self) -> Iterator[None]:
        known = self._known().items()
        self._pinned = {oid: self._tables.find(identifier_of(target)) for oid, target in known}
        yield
        self._pinned = {}

    def table_sum(self, table: TableDefinition) -> TableSum | None:
        target, there = Target.of(table), self._pinned.get(table.oid)
        if there is None or self._known().get(table.oid) != target:
            return None
        with self._transactions.explained(identifier_of(target)):
            live = LiveRows(there)
            rows = (live.table_rows(*found) for entry in live.data for found in live.rows(entry))
            return arrow_sum(target, rows)

    # -- maintenance -----------------------------------------------------------------------------

    def maintain(self, target: Target) -> None:
        """Compact it, and forget its old snapshots."""
        options = self.options.maintenance
        self._compact(identifier_of(target), options.small_files)
        self._expire(identifier_of(target), options.keep_snapshots)

    def maintain_rest(self) -> None:
        """The control table's snapshots, which nobody reads."""
        self._expire(
            self.ledger.identifier, min(_KEEP_NOTES, self.options.maintenance.keep_snapshots)
        )

    def _compact(self, identifier: Identifier, small: int) -> None:
        with self._transactions.explained(identifier):
            table = self._transactions.table(identifier)
            if (change := compacted(table, small)) is not None:
                self._transactions.commit(table, change, self._transactions.state(table))

    def _expire(self, identifier: Identifier, keep: float) -> None:
        with self._transactions.explained(identifier):
            expire_older(self._transactions.table(identifier), keep)
