"""The driver's side of what warehouses share that take files and are spoken to in SQL."""

# ruff: noqa: S608 (names are quoted by the dialect)

from __future__ import annotations

import json
import logging
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from penstock.destination.contract import SchemaChange
from penstock.destination.families.change_tables.definition import is_change_table
from penstock.destination.families.kept_tables import Key, Notes, parked_note
from penstock.destination.families.ledger import fenced
from penstock.destination.families.staged_merge.destination import StagedMergeDestination
from penstock.destination.families.staged_merge.joined_rows import MergedRows
from penstock.destination.families.staged_merge.object_stage import ObjectStage, stage_owner
from penstock.destination.families.staged_merge.receipt import Mark, StagedChunk
from penstock.destination.families.staged_merge.typed_columns import ColumnTyping
from penstock.destination.families.target import Target
from penstock.destination.families.warehouse.dialect import Dialect
from penstock.destination.families.warehouse.done_changes import DoneChanges
from penstock.destination.families.warehouse.latest_view import (
    drop_view,
    make_view,
    view_name,
    view_of,
)
from penstock.destination.families.warehouse.ledger import WarehouseLedger
from penstock.destination.families.warehouse.loaded_files import LoadedFiles
from penstock.destination.families.warehouse.merging import WarehouseMerge
from penstock.destination.families.warehouse.options import WarehouseOptions
from penstock.destination.families.warehouse.session import WarehouseSession, one_each
from penstock.destination.families.warehouse.staged_rows import ROW
from penstock.destination.families.warehouse.sums import SumWords, sum_query, warehouse_summed_as
from penstock.destination.families.warehouse.tables import (
    Tables,
    WarehouseAlteration,
    create_table,
    warehouse_tables,
)
from penstock.destination.protocols import CopiedByWorkers, SummedAs, TableSum, Verifiable
from penstock.failpoints import failpoint
from penstock.model.errors import BatchAgain, DestinationError, TableRefused, refused_alone
from penstock.model.lsn import Frontier
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TableDefinition
from penstock.objects.bucket import Bucket

_log = logging.getLogger(__name__)


class WarehouseDestination(StagedMergeDestination, CopiedByWorkers, Verifiable):
    """Rows, schema changes and the position are one transaction of the warehouse. A member gives it
    a session and a dialect, and the class attributes that every destination has.
    """

    options: WarehouseOptions

    def __init__(self, options: WarehouseOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self.capabilities = replace(self.capabilities, mode=options.mode)
        self.typing = ColumnTyping(self.dialect.types, options.unfit)
        self._there: Tables | None = None
        # Of a transaction that may not have told the ledger yet.
        self._made: dict[int, Target] = {}
        self._uploaded: list[str] = []
        self._was_checked = False
        self._applied: dict[int, Mark] = {}
        self._done = DoneChanges(self._noted, pipeline)
        self._sums: dict[int, tuple[Target, TableSum]] = {}

    # -- what a member says ----------------------------------------------------------------------

    @property
    @abstractmethod
    def dialect(self) -> Dialect: ...

    @property
    @abstractmethod
    def session(self) -> WarehouseSession: ...

    @property
    @abstractmethod
    def sum_words(self) -> SumWords: ...

    @abstractmethod
    def look(self) -> Sequence[str]:
        """Ask the warehouse for rights and what else can be seen; as ``check``."""

    @abstractmethod
    def loaded_files(self) -> LoadedFiles:
        """Where files are put that the warehouse loads."""

    # -- what the base does ----------------------------------------------------------------------

    @cached_property
    def bucket(self) -> Bucket:
        options = self.options.revealed_stage_options
        root = Bucket(self.options.stage, options, stage_owner(self.name))
        return root.child(self.pipeline)

    @cached_property
    def stage(self) -> ObjectStage:
        return ObjectStage(self.bucket)

    @cached_property
    def ledger(self) -> WarehouseLedger:
        return WarehouseLedger(self.session, self.dialect, self.pipeline)

    def check(self) -> Sequence[str]:
        """The stage every time, the warehouse once: an idle pipeline must not keep it awake."""
        self.stage.expect_writable(self.name)
        if self._was_checked:
            return ()
        found = self.look()
        self._was_checked = True
        return found

    def close(self) -> None:
        super().close()
        self.session.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        try:
            with self.session.transaction():
                yield
                failpoint(f"{self.name}.merged")
            failpoint(f"{self.name}.committed")
        except BatchAgain as error:
            # Who was faster? A driver that took over ends this one.
            if self.ledger.is_current(self._driver):
                raise
            raise fenced(self.name, self.pipeline) from error
        finally:
            self._made.clear()
            self._applied.clear()
            self._done.forget()
            uploaded, self._uploaded = self._uploaded, []
            with suppress(DestinationError):  # what stays is removed at the next start
                self.loaded_files().remove(uploaded)

    # -- tables ----------------------------------------------------------------------------------

    def prepare(self, definitions: Sequence[TableDefinition]) -> None:
        with self._lock:
            self._there = None
            known = self._known()
            held = {t.oid: self._held_as(t, known.get(t.oid))[1] for t in definitions}
            if all(known.get(oid) == target for oid, target in held.items()):
                self._targets = {**self._targets, **held}
                return
            super().prepare(definitions)

    @contextmanager
    def _changing_tables(self) -> Iterator[None]:
        """For statements that change tables. Where they commit what stands before them, that is
        committed with marks of how far it goes: it is not done again after a crash.
        """
        if self.dialect.has_transactional_ddl:
            with self.session.transaction():
                yield
            return
        if self.session.in_transaction:
            marks: Notes = {f"held/{oid}": json.dumps(mark) for oid, mark in self._applied.items()}
            self.ledger.write(self._driver, {**marks, **self._done.notes()})
        with self.session.outside():
            yield

    def _run_as_driver(self, statement: str) -> None:
        """Execute what changes a table. Outside of a transaction nothing else keeps out a driver
        that slept until the next one was done: it looks right before the statement.
        """
        in_transaction = self.session.in_transaction
        if not in_transaction and not self.ledger.is_current(self._driver):
            raise fenced(self.name, self.pipeline)
        self.session.run(statement)

    def held(self, target: Target) -> Mark | None:
        name = f"held/{target.oid}"
        note = self.ledger.read(name).get(name)
        if note is None:
            return None
        frontier, lacking, commit = json.loads(note)
        return Mark(Frontier(*frontier), lacking, commit)

    def create(self, table: TableDefinition, target: Target) -> None:
        self._expect_own_name(target)
        with self.session.alone(target.oid), self._changing_tables():
            if self._there is None:
                self._there = warehouse_tables(self.session, self.dialect)
            create_table(self.session, self.dialect, target, self._there)
            # Where staged rows need a table that stays, it comes and goes with the other one.
            one_each(self.dialect.staging_table(target), self.session)
            self._make_view(target)

    def fit_table(self, table: TableDefinition, former: Sequence[TableDefinition]) -> None:
        with self._lock:
            self._there = {}  # what the table was is dropped first
            super().fit_table(table, former)

    def drop(self, target: Target) -> None:
        with self._changing_tables():
            self._drop_view(target)
            self._run_as_driver(self.dialect.drop_table(self.dialect.table(target)))
            one_each(self.dialect.drop_staging(target), self.session)

    def alter(self, change: TableChange, before: Target, after: Target) -> None:
        assert self.typing is not None  # noqa: S101
        self._expect_own_name(after)
        alteration = WarehouseAlteration(self.dialect, change, before, after, self.typing)
        if self.dialect.has_transactional_ddl:
            with self.session.alone(after.oid), self.session.transaction():
                # A view keeps the columns that it names where they are.
                self._drop_view(before)
                alteration.run(self.session)
                self._make_view(after)
            return
        if self._done.holds(after.oid):
            return
        commit = self._commits + 1
        with self.session.alone(after.oid), self._changing_tables():
            there = warehouse_tables(self.session, self.dialect)
            if self._done.is_counted(commit) and alteration.may_be_done(there):
                self._done.take_from_count()
            else:
                marks = self._done.marks(after.oid, commit)
                alteration.resume(self.session, self._run_as_driver, there, marks)
                one_each(self.dialect.staging_table(after), self.session)
                self._make_view(after)
                if view_of(self.dialect, after) != view_name(self.dialect, before):
                    self._drop_view(before)
        self._done.finish(after.oid)

    def _alter(self, change: SchemaChange, targets: Mapping[int, Target], notes: Notes) -> None:
        self._done.position = change.position
        super()._alter(change, targets, notes)
        if not self.dialect.has_transactional_ddl:
            for oid in self._followed(change, targets):
                notes |= self._done.forgotten(oid)

    def _noted(self, prefix: str) -> Mapping[str, str]:
        return self.ledger.read(prefix)

    def _make_view(self, target: Target) -> None:
        """Show the rows that a change table leaves, if it is one."""
        if self.dialect.has_transactional_ddl:
            self._drop_view(target)  # who has transactions replaces no columns of a view
        one_each(make_view(self.dialect, target), self.session)

    def _drop_view(self, target: Target) -> None:
        if is_change_table(target):
            one_each(drop_view(self.dialect, target), self.session)

    def _expect_own_name(self, target: Target) -> None:
        """Raise TableRefused where another table of the pipeline has the same name there."""
        named = self._place(target)
        # What this transaction has made of a table is newer than what the ledger says.
        for other in (self._known() | self._made).values():
            if other.oid != target.oid and self._place(other) == named:
                raise TableRefused(
                    f"table {target.qualified_name} and table {other.qualified_name} have the same "
                    f"name in {self.name}, {named}",
                    remedy="leave one of them out by the pipeline's filter, or rename it at the "
                    "source",
                    table=target.oid,
                )
        self._made[target.oid] = target

    def _place(self, target: Target) -> str:
        return self.dialect.table(target)

    def empty(self, target: Target) -> None:
        """Not by TRUNCATE, which would commit what stands before it."""
        with self.session.alone(target.oid), self.session.transaction():
            self.session.run(self.dialect.delete_all(self.dialect.table(target)))

    def has_rows(self, target: Target) -> bool:
        name = self.dialect.table(target)
        return bool(self.session.rows(f"SELECT 1 FROM {name} LIMIT 1"))

    # -- rows ------------------------------------------------------------------------------------

    def apply(self, rows: MergedRows, at: Mark) -> Sequence[Key]:
        with self.session.alone(rows.target.oid), self.session.transaction():
            parked = self._merge(rows.target).apply(rows)
        if not self.dialect.has_transactional_ddl:
            self._applied[rows.target.oid] = at
            if parked:
                # With the rows: what is committed behind them may be in another transaction.
                notes: Notes = {parked_note(rows.target.oid, key): "" for key in parked}
                self.ledger.write(self._driver, notes)
        return parked

    def load(self, target: Target, rows: pa.Table, *, over: bool) -> None:
        with self.session.alone(target.oid), self.session.transaction():
            self._merge(target).load(rows, over=over)

    def chunk_stage(self, target: Target) -> LoadedFiles:
        # Their number is told by a column of its own, which only a table without any needs.
        return replace(self.loaded_files(), leave_out=("row",) if target.columns else ())

    def load_chunk(self, target: Target, chunk: StagedChunk) -> None:
        if not chunk.rows:
            return
        columns = [f"c{index}" for index in range(len(target.columns))] or [ROW]
        with self.session.alone(target.oid), self.session.transaction():
            self._merge(target).load_file(chunk.file, columns, over=chunk.again)
        failpoint(f"{self.name}.copy_loaded")

    def _merge(self, target: Target) -> WarehouseMerge:
        return WarehouseMerge(self.session, self.dialect, target, self._put)

    def _put(self, rows: pa.Table) -> str:
        """A file that is removed once the transaction has ended, however it does."""
        name = self.loaded_files().put([rows], rows.schema)
        self._uploaded.append(name)
        return name

    # -- verify ----------------------------------------------------------------------------------

    def summed_as(self, plain: str) -> SummedAs:
        return warehouse_summed_as(self.dialect, self.sum_words, plain)

    @contextmanager
    def pinned(self) -> Iterator[None]:
        """All tables are added up while the pipeline stands still: no snapshot of the warehouse
        stays for as long as that takes, and not all of them keep one for readers.
        """
        for oid, target in self._known().items():
            place = self.dialect.table_query(target.schema, target.name)
            if self.session.rows(place):
                try:
                    with refused_alone(oid):
                        self._sums[oid] = target, self._sum_of(target)
                except TableRefused as error:
                    _log.warning(error.message, extra={"event": "table_broken"})
        yield
        self._sums.clear()

    def _sum_of(self, target: Target) -> TableSum:
        query = sum_query(self.dialect, self.sum_words, target)
        ((rows, checksum),) = self.session.rows(query)
        return TableSum(int(rows), int(checksum))

    def table_sum(self, table: TableDefinition) -> TableSum | None:
        target, found = self._sums.get(table.oid, (None, None))
        return found if target == Target.of(table) else None
