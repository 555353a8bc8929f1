"""The driver's side of what lakes and warehouses share."""

from __future__ import annotations

import json
import uuid
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pyarrow as pa

from penstock.destination.contract import ChunkReceipt, Receipt, Rows, SchemaChange
from penstock.destination.families.kept_tables import KeptTables, Key, after_change, parked_note
from penstock.destination.families.ledger import fenced, watermarks_from, watermarks_text
from penstock.destination.families.staged_merge.joined_rows import (
    MergedRows,
    joined,
    no_rows,
    removed,
)
from penstock.destination.families.staged_merge.receipt import MergeBatch
from penstock.destination.families.staged_merge.stage import FileStage
from penstock.destination.families.staged_merge.task_writer import StagedChunkWriter, StagedWriter
from penstock.destination.families.target import Target
from penstock.destination.protocols import TakesReplays
from penstock.model.lsn import NOTHING, Frontier
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import TableRows
from penstock.model.watermarks import Watermarks


class StagedMergeDestination(KeptTables, TakesReplays):
    """Executors stage net rows, the driver joins and merges those of touched tables.

    A member gives it a stage and a ledger, and says how tables are made, changed, merged and
    loaded: the abstract methods. Where it has transactions, ``transaction`` opens one, and data and
    progress are committed together. Where it has none, each table's commit carries the position
    that ``apply`` is given, ``held`` reads it, and a batch that comes again is skipped table by
    table. A commit without rows never reaches the member: the stage's note remembers it.
    """

    side_by_side: ClassVar[int] = 1
    """How many tables are merged at the same time. More than one: not in one transaction."""

    def __init__(self, options: object, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self._commits = 0
        self._replaying: frozenset[int] = frozenset()

    # -- what a member says ----------------------------------------------------------------------

    @property
    @abstractmethod
    def stage(self) -> FileStage: ...

    @abstractmethod
    def empty(self, target: Target) -> None:
        """Remove all rows."""

    @abstractmethod
    def apply(self, rows: MergedRows, at: Frontier) -> Sequence[Key]:
        """Merge rows into their table, which stands at ``at`` then; the keys that were parked.

        Raises TableRefused where the table does not take them.
        """

    @abstractmethod
    def load(self, target: Target, rows: pa.Table, *, over: bool) -> None:
        """Add copied rows, whose columns are named ``c0``, ``c1``, … after their places; ``over``
        puts them in place of rows with the same key.
        """

    def held(self, target: Target) -> Frontier | None:
        """Where a table stands by itself; None where the ledger alone knows."""
        return None

    # -- before the first batch ------------------------------------------------------------------

    def open(self) -> None:
        with self._lock:
            at = self.committed()
            self._driver = self.ledger.take_over()
            self._commits = int(self.ledger.read("commits").get("commits", 0))
            self.stage.clean()
            self._remember(at)

    # -- batches ---------------------------------------------------------------------------------

    def writer(self) -> StagedWriter:
        return StagedWriter(self.stage, self._targets, self._replaying)

    def catchup_writer(self, tables: Collection[int]) -> StagedWriter:
        targets = {oid: self._targets[oid] for oid in tables}
        return StagedWriter(self.stage, targets, self._replaying)

    def commit(self, receipts: Sequence[Receipt], watermarks: Watermarks) -> None:
        self.commit_sections([Rows(tuple(receipts))], watermarks)

    def section_writer(self, changes: Sequence[SchemaChange]) -> StagedWriter:
        targets = dict(self._targets)
        for change in changes:
            targets.update(after_change(change, targets))
        return StagedWriter(self.stage, targets, self._replaying)

    def commit_sections(
        self, sections: Sequence[SchemaChange | Rows], watermarks: Watermarks
    ) -> None:
        steps = [
            MergeBatch.from_bytes(section.receipts) if isinstance(section, Rows) else section
            for section in sections
        ]
        batches = [step for step in steps if isinstance(step, MergeBatch)]
        if len(batches) == len(steps) and not any(batch.touched() for batch in batches):
            with self._lock:
                self._remember(watermarks)
            return
        with self._changing() as notes:
            targets, changed = dict(self._targets), dict[int, Target]()
            for step in steps:
                if isinstance(step, MergeBatch):
                    for key in self._apply(step, targets, watermarks):
                        notes[key] = ""
                else:
                    self._alter(step, targets, notes)
                    changed.update(after_change(step, targets))
                    targets.update(changed)
            notes["commits"] = str(self._commits + 1)
            notes["progress"] = watermarks_text(watermarks)
        self._targets = {**self._targets, **changed}
        self._commits += 1
        self.stage.remove([file for batch in batches for file in batch.files])

    def committed(self) -> Watermarks | None:
        """Of the last commit with rows, or of one without them that came after it."""
        notes = self.ledger.read("commits") | self.ledger.read("progress")
        idle = json.loads(self.stage.noted() or "{}")
        if idle.get("watermarks") and idle["commits"] == int(notes.get("commits", 0)):
            return watermarks_from(idle["watermarks"])
        return watermarks_from(notes["progress"]) if "progress" in notes else None

    def _remember(self, watermarks: Watermarks | None) -> None:
        """Put a frontier that moved without rows down where it wakes nobody, and which driver it
        was: a stale one finds another's number there.
        """
        idle = json.loads(self.stage.noted() or "{}")
        if idle.get("driver", 0) > self._driver:
            raise fenced(self.name, self.pipeline)
        text = None if watermarks is None else watermarks_text(watermarks)
        note = {"driver": self._driver, "commits": self._commits, "watermarks": text}
        self.stage.note(json.dumps(note))

    def _apply(
        self, batch: MergeBatch, targets: Mapping[int, Target], watermarks: Watermarks
    ) -> list[str]:
        """Merge what a batch holds; the notes of keys that were parked."""

        def merge(oid: int) -> list[str]:
            emptied, parts = touched[oid]
            target, at = targets[oid], watermarks.at(oid)
            held = self.held(target)
            if held is not None and held >= at:
                return []
            files = [self.stage.get(part.file) for part in parts]
            if files:
                rows = joined(target, parts[0].kind, files, emptied=emptied)
            else:
                rows = no_rows(target, emptied=emptied)
            return [parked_note(oid, key) for key in self.apply(rows, at)]

        touched = batch.touched()
        if self.side_by_side == 1 or len(touched) < 2:
            found = [merge(oid) for oid in touched]
        else:
            with ThreadPoolExecutor(self.side_by_side) as pool:
                found = list(pool.map(merge, touched))
        return [note for notes in found for note in notes]

    # -- copies ----------------------------------------------------------------------------------

    def truncate_table(self, table: TableDefinition) -> None:
        with self._changing() as notes:
            self.empty(self._targets[table.oid])
            self._forget_copy(table, notes)
            # Chunks of earlier copies that are still being written have another name.
            notes[f"copy/{table.oid}/"] = uuid.uuid4().hex

    def chunk_writer(self, table: TableDefinition, *, again: bool = False) -> StagedChunkWriter:
        target = self._targets[table.oid]
        return StagedChunkWriter(self.stage, target, self._copy(table.oid), again)

    def commit_chunks(self, receipts: Sequence[ChunkReceipt]) -> None:
        chunks = [json.loads(receipt.content) for receipt in receipts]
        with self._changing() as notes:
            for oid, copy, chunk, file, again in chunks:
                name = f"chunk/{oid}/{chunk}"
                is_new = name not in notes and name not in self.ledger.read(name)
                if is_new and copy == self._copy(oid):
                    self.load(self._targets[oid], self.stage.get(file), over=again)
                    notes[name] = ""
        self.stage.remove([file for _, _, _, file, _ in chunks])

    def _copy(self, table: int) -> str:
        """Which copy of the table is under way."""
        return "".join(self.ledger.read(f"copy/{table}/").values())

    # -- replays ---------------------------------------------------------------------------------

    def replaying(self, tables: Collection[int]) -> None:
        self._replaying = frozenset(tables)

    def settle_parked(self, rows: TableRows, keys: Sequence[Key]) -> None:
        target = self._targets[rows.table.oid]
        columns = [rows.columns[place] for place in target.places(rows.table)]
        there = zip(*(columns[index].to_pylist() for index in target.key), strict=True)
        gone = list(set(keys) - set(there))
        at = self.held(target) or NOTHING
        with self._changing() as notes:
            if gone:
                self.apply(removed(target, gone), at)
            names = [f"c{index}" for index in range(len(columns))]
            self.load(target, pa.table(columns, names=names), over=True)
            notes.update(dict.fromkeys(parked_note(target.oid, key) for key in keys))

    def forget(self) -> Sequence[str]:
        self.stage.clean()
        self.stage.note("{}")
        return super().forget()
