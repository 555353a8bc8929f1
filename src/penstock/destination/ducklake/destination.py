"""Keeps the current rows of every table, or every change, in a DuckLake."""

# ruff: noqa: S608 (names are quoted, values are bound)

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path

import pyarrow as pa

from penstock.destination.contract import Capabilities
from penstock.destination.ducklake.chunk_files import (
    BucketChunkFiles,
    DuckLakeChunkFiles,
    remove_stray_objects,
    remove_strays,
)
from penstock.destination.ducklake.lake import Lake, NoLakeError
from penstock.destination.ducklake.ledger import LakeLedger
from penstock.destination.ducklake.merging import Key, merge_rows, put_rows
from penstock.destination.ducklake.names import TYPES, column_names, literal, table_name
from penstock.destination.ducklake.options import DucklakeOptions
from penstock.destination.ducklake.sums import lake_sum
from penstock.destination.ducklake.tables import (
    Columns,
    DuckLakeAlteration,
    create_table,
    drop_table,
    drop_view,
    lake_tables,
    make_view,
)
from penstock.destination.families import durable
from penstock.destination.families.kept_tables import Notes
from penstock.destination.families.ledger import fenced
from penstock.destination.families.staged_merge.destination import StagedMergeDestination
from penstock.destination.families.staged_merge.joined_rows import MergedRows
from penstock.destination.families.staged_merge.object_stage import (
    ObjectStage,
    chosen_stage,
)
from penstock.destination.families.staged_merge.receipt import Mark, MergeBatch, StagedChunk
from penstock.destination.families.staged_merge.stage import FileStage
from penstock.destination.families.staged_merge.task_writer import StagedChunkWriter
from penstock.destination.families.staged_merge.typed_columns import ColumnTyping
from penstock.destination.families.target import Target
from penstock.destination.protocols import CopiedByWorkers, TableSum, Ticket, Verifiable
from penstock.failpoints import failpoint
from penstock.model.errors import (
    BatchAgain,
    DestinationError,
    DestinationUnavailable,
    refused_alone,
)
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TableDefinition
from penstock.model.watermarks import Watermarks
from penstock.objects.bucket import Bucket, Owner

_MANY_TABLES = 20
_COPIES = "copies"
"""The note with the name of the folder for copied rows."""
_DATA_OWNER = Owner(
    "destination ducklake: the data path",
    "destination.data_path",
    "destination.data_options",
    DestinationError,
    DestinationUnavailable,
)
_ONE_PROCESS = (
    "destination ducklake: a catalogue that is a file can be open in one process only: who reads "
    "the lake keeps the pipeline waiting, and the other way round; one in Postgres has no such "
    "limit"
)


class DucklakeDestination(StagedMergeDestination, CopiedByWorkers, Verifiable):
    """Rows, schema changes and the position are one transaction of the lake."""

    name = "ducklake"
    options_model = DucklakeOptions
    capabilities = Capabilities(
        mode="merge", exactly_once=True, remembers=True, atomic=True, batch_age=5.0
    )
    bytes_at_once = 2**26
    failpoints = ("ducklake.merged", "ducklake.committed", "ducklake.copy_loaded")

    def __init__(self, options: DucklakeOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self.capabilities = replace(self.capabilities, mode=options.mode)
        self._lake = Lake(options)
        self._there: Mapping[tuple[str, str], Columns] | None = None
        self._copies_name = ""
        self.typing = ColumnTyping(TYPES, options.unfit)
        every = options.maintenance.every
        self.maintenance_every = math.inf if every == "never" else every

    @cached_property
    def stage(self) -> FileStage:
        if self.options.stage is None and self.options.is_in_bucket:
            return ObjectStage(self._bucket("-stage", self.pipeline))
        folder = Path(self.options.data_path).absolute()
        beside = folder.with_name(f"{folder.name}-stage")
        return chosen_stage(self.name, self.options, beside, self.pipeline)

    @cached_property
    def ledger(self) -> LakeLedger:
        return LakeLedger(self._lake, self.pipeline)

    def check(self) -> Sequence[str]:
        with suppress(NoLakeError), self._lake.session() as session:
            session.execute("FROM ducklake_options(?)", [self._lake.name]).fetchall()
        if self.options.is_in_bucket:
            ObjectStage(self._bucket("/penstock-copies")).expect_writable(self.name)
        else:
            durable.expect_writable(self.name, Path(self.options.data_path).absolute())
        self.stage.expect_writable(self.name)
        return [_ONE_PROCESS] if self.options.catalog is None else []

    def open(self) -> None:
        self._lake.may_create = True
        with self._lock, self._lake.session():
            super().open()
            self._copies_name = self._named_copies()
        with self._lake.session() as session:
            catalogue = f"__ducklake_metadata_{self._lake.name}"
            known = session.execute(
                f"SELECT path FROM {catalogue}.ducklake_data_file UNION ALL"
                f" SELECT path FROM {catalogue}.ducklake_files_scheduled_for_deletion"
            ).fetchall()
        files = [path for (path,) in known]
        if self.options.is_in_bucket:
            remove_stray_objects(self._bucket(*self._copies), files)
        else:
            remove_strays(Path(self.options.data_place + "/".join(self._copies)), files)

    def _named_copies(self) -> str:
        """Of this ledger alone: another catalogue may have the same data path and a pipeline of the
        same name, and this one does not know the files of that.
        """
        name = self.ledger.read(_COPIES).get(_COPIES)
        if name is None:
            name = uuid.uuid4().hex
            self.ledger.write(self._driver, {_COPIES: name})
        return name

    def committed(self) -> Watermarks | None:
        with suppress(NoLakeError), self._lake.session():
            return super().committed()
        return None

    def close(self) -> None:
        super().close()
        self._lake.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        try:
            with self._lake.transaction():
                yield
                failpoint("ducklake.merged")
            failpoint("ducklake.committed")
        except BatchAgain as error:
            # Whose change was faster? That of a driver that took over ends this one.
            if self.ledger.is_current(self._driver):
                raise
            raise fenced(self.name, self.pipeline) from error

    # -- tables ----------------------------------------------------------------------------------

    def prepare(self, definitions: Sequence[TableDefinition]) -> None:
        with self._lock:
            self._there = None
            super().prepare(definitions)

    def create(self, table: TableDefinition, target: Target) -> None:
        with refused_alone(target.oid), self._lake.transaction() as session:
            if self._there is None:
                self._there = lake_tables(session)
            create_table(session, target, self._there.get((target.schema, target.name), ()))
            make_view(session, target)

    def fit_table(self, table: TableDefinition, former: Sequence[TableDefinition]) -> None:
        with self._lock:
            self._there = {}  # what the table was is dropped first
            super().fit_table(table, former)

    def drop(self, target: Target) -> None:
        with self._lake.transaction() as session:
            drop_table(session, target)

    def alter(self, change: TableChange, before: Target, after: Target) -> None:
        with refused_alone(after.oid), self._lake.transaction() as session:
            assert self.typing is not None  # noqa: S101
            drop_view(session, before)
            DuckLakeAlteration(session, change, before, after, self.typing).run()
            make_view(session, after)

    def empty(self, target: Target) -> None:
        with self._lake.transaction() as session:
            session.execute(f"DELETE FROM {table_name(target)}")

    def has_rows(self, target: Target) -> bool:
        with self._lake.session() as session:
            found = session.execute(f"SELECT 1 FROM {table_name(target)} LIMIT 1").fetchone()
            return found is not None

    # -- rows ------------------------------------------------------------------------------------

    def _apply(
        self,
        batch: MergeBatch,
        targets: Mapping[int, Target],
        watermarks: Watermarks,
        lacking: int,
        notes: Notes,
    ) -> None:
        is_many = len(batch.touched()) >= _MANY_TABLES
        with self._lake.one_thread() if is_many else nullcontext():
            super()._apply(batch, targets, watermarks, lacking, notes)

    def apply(self, rows: MergedRows, at: Mark) -> Sequence[Key]:
        with refused_alone(rows.target.oid), self._lake.transaction() as session:
            return merge_rows(session, rows)

    def load(self, target: Target, rows: pa.Table, *, over: bool) -> None:
        with refused_alone(target.oid), self._lake.transaction() as session:
            put_rows(session, target, rows, over=over)

    @property
    def _copies(self) -> tuple[str, ...]:
        """What is behind the data path, where copied rows are."""
        return "/penstock-copies", self.pipeline, self._copies_name

    def _bucket(self, *behind: str) -> Bucket:
        """What is behind the data path, where that is in an object store."""
        place = self.options.data_path + "/".join(behind)
        return Bucket(place, self.options.revealed_data_options, _DATA_OWNER)

    def chunk_stage(self, target: Target) -> DuckLakeChunkFiles | BucketChunkFiles:
        if self.options.is_in_bucket:
            return BucketChunkFiles(self._bucket(*self._copies), target)
        return DuckLakeChunkFiles(self.options.data_place + "/".join(self._copies), target)

    def chunk_ticket(self, table: TableDefinition, *, again: bool = False) -> Ticket:
        return {**super().chunk_ticket(table, again=again), _COPIES: self._copies_name}

    def ticket_writer(self, table: TableDefinition, ticket: Ticket) -> StagedChunkWriter:
        self._copies_name = ticket[_COPIES]
        return super().ticket_writer(table, ticket)

    def load_chunk(self, target: Target, chunk: StagedChunk) -> None:
        if not chunk.rows:
            return
        file = literal(self.chunk_stage(target).file(chunk.file))
        with refused_alone(target.oid), self._lake.transaction() as session:
            lake = literal(self._lake.name)
            if chunk.again and target.key:
                names = column_names(target)
                same = " AND ".join(f"t.{names[i]} = r.{names[i]}" for i in target.key)
                session.execute(
                    f"DELETE FROM {table_name(target)} t USING read_parquet({file}) r WHERE {same}"
                )
            session.execute(
                f"CALL ducklake_add_data_files({lake}, {literal(target.name)}, {file},"
                f" schema => {literal(target.schema)})"
            )
        failpoint("ducklake.copy_loaded")

    # -- verify ----------------------------------------------------------------------------------

    @contextmanager
    def pinned(self) -> Iterator[None]:
        with self._lake.transaction():
            # A transaction's snapshot is that of its first look.
            self.ledger.read("commits")
            yield

    def table_sum(self, table: TableDefinition) -> TableSum | None:
        target = Target.of(table)
        if self._known().get(table.oid) != target:
            return None
        with self._lake.session() as session:
            return lake_sum(session, target)

    # -- maintenance -----------------------------------------------------------------------------

    def maintain_rest(self) -> None:
        """All tables at once. Whatever is put together here is no change of rows. In the driver and
        between batches, of whichever pipeline: beside a delete it would undo that.
        """
        keep = int(self.options.maintenance.keep_snapshots)
        old = f", older_than => now() - INTERVAL {keep} SECOND"
        with self._lake.alone():
            for what, how in (
                ("flush_inlined_data", ""),
                ("rewrite_data_files", ""),
                ("merge_adjacent_files", ""),
                ("expire_snapshots", old),
                ("cleanup_old_files", old),
            ):
                with self._lake.transaction() as session:
                    session.execute(f"CALL ducklake_{what}({literal(self._lake.name)}{how})")
