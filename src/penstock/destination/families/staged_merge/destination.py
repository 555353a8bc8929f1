"""The driver's side of what lakes and warehouses share."""

from __future__ import annotations

import json
import threading
import uuid
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import ClassVar

import pyarrow as pa

from penstock.destination.contract import (
    ChunkReceipt,
    Destination,
    Receipt,
    Rows,
    SchemaChange,
)
from penstock.destination.families.ledger import (
    Ledger,
    fenced,
    watermarks_from,
    watermarks_text,
)
from penstock.destination.families.staged_merge.joined_rows import (
    MergedRows,
    joined,
    no_rows,
    removed,
)
from penstock.destination.families.staged_merge.receipt import StagedBatch
from penstock.destination.families.staged_merge.stage import Stage
from penstock.destination.families.staged_merge.task_writer import StagedChunkWriter, StagedWriter
from penstock.destination.families.target import Target
from penstock.destination.protocols import (
    FollowsSchema,
    HoldsTables,
    TablesFailAlone,
    TakesCopies,
    TakesReplays,
)
from penstock.model.errors import TableRefused
from penstock.model.lsn import NOTHING, Frontier
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import TableRows
from penstock.model.watermarks import Watermarks

Key = tuple[str, ...]


class StagedMergeDestination(
    Destination, TakesCopies, HoldsTables, TakesReplays, FollowsSchema, TablesFailAlone
):
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
        self._driver = self._commits = 0
        self._targets: dict[int, Target] = {}
        self._replaying: frozenset[int] = frozenset()
        self._lock = threading.RLock()

    # -- what a member says ----------------------------------------------------------------------

    @property
    @abstractmethod
    def stage(self) -> Stage: ...

    @property
    @abstractmethod
    def ledger(self) -> Ledger: ...

    @abstractmethod
    def create(self, table: TableDefinition, target: Target) -> None:
        """Make an empty table. Raises TableRefused where it cannot."""

    @abstractmethod
    def drop(self, target: Target) -> None:
        """Remove a table with its rows, if it is there."""

    @abstractmethod
    def alter(self, change: TableChange, before: Target, after: Target) -> None:
        """Follow a schema change of a table, also if that was done before. Raises TableRefused."""

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

    def transaction(self) -> AbstractContextManager[object]:
        """All that happens inside is committed together with what the ledger is told."""
        return nullcontext()

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

    def prepare(self, definitions: Sequence[TableDefinition]) -> None:
        with self._changing() as notes:
            known = self._known()
            for table in definitions:
                target = Target.of(table)
                if (there := known.get(table.oid)) is None:
                    self.create(table, target)
                    notes[f"table/{table.oid}"] = target.to_text()
                elif there != target:
                    raise TableRefused(
                        f"table {target.qualified_name} is another at the destination: it has the "
                        f"columns {', '.join(there.columns)}",
                        remedy=f"run `penstock tables resync` for {target.qualified_name}",
                        table=table.oid,
                    )
        self._targets = {**self._targets, **{t.oid: Target.of(t) for t in definitions}}

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
            targets.update(_after(change, targets))
        return StagedWriter(self.stage, targets, self._replaying)

    def commit_sections(
        self, sections: Sequence[SchemaChange | Rows], watermarks: Watermarks
    ) -> None:
        steps = [
            StagedBatch.from_bytes(section.receipts) if isinstance(section, Rows) else section
            for section in sections
        ]
        batches = [step for step in steps if isinstance(step, StagedBatch)]
        if len(batches) == len(steps) and not any(batch.touched() for batch in batches):
            with self._lock:
                self._remember(watermarks)
            return
        targets = dict(self._targets)
        with self._changing() as notes:
            for step in steps:
                if isinstance(step, StagedBatch):
                    for key in self._apply(step, targets, watermarks):
                        notes[key] = ""
                else:
                    self._alter(step, targets, notes)
            notes["commits"] = str(self._commits + 1)
            notes["progress"] = watermarks_text(watermarks)
        self._commits += 1
        self._targets = targets
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
        self, batch: StagedBatch, targets: Mapping[int, Target], watermarks: Watermarks
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
            return [_parked(oid, key) for key in self.apply(rows, at)]

        touched = batch.touched()
        if self.side_by_side == 1 or len(touched) < 2:
            found = map(merge, touched)
        else:
            with ThreadPoolExecutor(self.side_by_side) as pool:
                found = iter(list(pool.map(merge, touched)))
        return [note for notes in found for note in notes]

    def _alter(
        self, change: SchemaChange, targets: dict[int, Target], notes: dict[str, str | None]
    ) -> None:
        after = _after(change, targets)
        for table in change.tables:
            if table.oid in after:
                self.alter(table, targets[table.oid], after[table.oid])
                notes[f"table/{table.oid}"] = after[table.oid].to_text()
        targets.update(after)

    # -- copies ----------------------------------------------------------------------------------

    def truncate_table(self, table: TableDefinition) -> None:
        with self._changing() as notes:
            self.empty(self._targets[table.oid])
            for prefix in (f"chunk/{table.oid}/", f"parked/{table.oid}/"):
                notes.update(dict.fromkeys(self.ledger.read(prefix)))
            # Chunks of earlier copies that are still being written have another name.
            notes[f"copy/{table.oid}"] = uuid.uuid4().hex

    def chunk_writer(self, table: TableDefinition, *, again: bool = False) -> StagedChunkWriter:
        copy = self.ledger.read(f"copy/{table.oid}").get(f"copy/{table.oid}", "")
        return StagedChunkWriter(self.stage, self._targets[table.oid], copy, again)

    def commit_chunks(self, receipts: Sequence[ChunkReceipt]) -> None:
        chunks = [json.loads(receipt.content) for receipt in receipts]
        with self._changing() as notes:
            for oid, copy, chunk, file, again in chunks:
                name = f"chunk/{oid}/{chunk}"
                is_ours = self.ledger.read(f"copy/{oid}").get(f"copy/{oid}", "") == copy
                if is_ours and name not in notes and name not in self.ledger.read(name):
                    self.load(self._targets[oid], self.stage.get(file), over=again)
                    notes[name] = ""
        self.stage.remove([file for _, _, _, file, _ in chunks])

    def has_foreign_rows(self, table: TableDefinition) -> bool:
        """Never: it makes its tables itself. A member that takes over tables asks them."""
        return False

    def fit_table(self, table: TableDefinition, former: Sequence[TableDefinition]) -> None:
        with self._changing() as notes:
            there, target = self._known().get(table.oid), Target.of(table)
            if there is not None and there != target:
                self.drop(there)
                self.create(table, target)
                notes[f"table/{table.oid}"] = target.to_text()

    def finish_copy(self, table: TableDefinition) -> None:
        """Nothing. A member that keeps statistics makes them here."""

    def complete_table(self, table: TableDefinition) -> None:
        """Nothing."""

    def drop_table(self, table: TableDefinition) -> None:
        with self._changing() as notes:
            if (there := self._known().get(table.oid)) is not None:
                self.drop(there)
            for prefix in (f"chunk/{table.oid}/", f"parked/{table.oid}/"):
                notes.update(dict.fromkeys(self.ledger.read(prefix)))
            notes.update({f"table/{table.oid}": None, f"copy/{table.oid}": None})
        self._targets = {oid: t for oid, t in self._targets.items() if oid != table.oid}

    def notes(self, table: int) -> Sequence[str]:
        return ()

    # -- replays ---------------------------------------------------------------------------------

    def replaying(self, tables: Collection[int]) -> None:
        self._replaying = frozenset(tables)

    def parked_keys(self, table: int) -> Sequence[Key]:
        prefix = f"parked/{table}/"
        return [tuple(json.loads(name.removeprefix(prefix))) for name in self.ledger.read(prefix)]

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
            notes.update(dict.fromkeys(_parked(target.oid, key) for key in keys))

    # -- what they share -------------------------------------------------------------------------

    @contextmanager
    def _changing(self) -> Iterator[dict[str, str | None]]:
        """Fence first, then what the block does, then the notes that it leaves, all together."""
        with self._lock, self.transaction():
            self.ledger.write(self._driver, {})
            notes: dict[str, str | None] = {}
            yield notes
            self.ledger.write(self._driver, notes)

    def _known(self) -> dict[int, Target]:
        found = self.ledger.read("table/").values()
        return {target.oid: target for target in map(Target.from_text, found)}

    def forget(self) -> Sequence[str]:
        self.stage.clean()
        return ["its ledger"] if self.ledger.forget() else []


def _after(change: SchemaChange, targets: Mapping[int, Target]) -> dict[int, Target]:
    """The tables that a change touches and that are followed, as they are behind it."""
    return {
        table.oid: Target.of(table.after)
        for table in change.tables
        if table.before is not None and table.after is not None and table.oid in targets
    }


def _parked(table: int, key: Key) -> str:
    return f"parked/{table}/{json.dumps(key)}"
