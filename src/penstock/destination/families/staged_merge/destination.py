"""The driver's side of what lakes and warehouses share."""

from __future__ import annotations

import json
import math
import sys
import threading
import uuid
from abc import abstractmethod
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import ClassVar

import pyarrow as pa

from penstock.destination.contract import (
    ChunkReceipt,
    Receipt,
    Rows,
    SchemaChange,
    TaskWriter,
)
from penstock.destination.families.change_tables.kept_changes import KeptChanges
from penstock.destination.families.change_tables.task_writer import (
    ChangeTableChunkWriter,
    ChangeTableWriter,
)
from penstock.destination.families.kept_tables import Key, Notes, parked_note
from penstock.destination.families.ledger import fenced, watermarks_from, watermarks_text
from penstock.destination.families.staged_merge.begun_changes import (
    BegunChange,
    begun_changes,
    begun_note,
)
from penstock.destination.families.staged_merge.joined_rows import (
    MergedRows,
    joined,
    no_rows,
    removed,
)
from penstock.destination.families.staged_merge.maintenance import Maintenance
from penstock.destination.families.staged_merge.receipt import Mark, MergeBatch, StagedChunk
from penstock.destination.families.staged_merge.sliced_rows import sliced
from penstock.destination.families.staged_merge.stage import ChunkStage, FileStage
from penstock.destination.families.staged_merge.task_writer import (
    StagedChunkWriter,
    StagedWriter,
    copied_columns,
)
from penstock.destination.families.staged_merge.typed_columns import ColumnTyping
from penstock.destination.families.staged_merge.unfit_policy import Unfit
from penstock.destination.families.target import Target
from penstock.destination.protocols import TakesReplays, Ticket
from penstock.destination.seen_elsewhere import not_seen_here
from penstock.model.errors import BatchAgain
from penstock.model.lsn import NOTHING
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import TableRows
from penstock.model.watermarks import Watermarks


class StagedMergeDestination(KeptChanges, TakesReplays):
    """Executors stage net rows, the driver joins and merges those of touched tables.

    A member gives it a stage and a ledger, and says how tables are made, changed, merged and
    loaded: the abstract methods. Where it has transactions, ``transaction`` opens one, and data and
    progress are committed together. Where it has none, each table's commit carries the mark that
    ``apply`` is given, and ``held`` reads it: what comes again is skipped table by table, and
    ``committed`` tells of tables that are ahead of the others. A commit without rows never reaches
    the member: the stage's note remembers it.
    """

    side_by_side: ClassVar[int] = 1
    """How many tables are merged at the same time. More than one: not in one transaction."""
    bytes_at_once: ClassVar[int] = 2**28
    """How much of what was staged for a table is joined and merged at a time, where that can be
    several times in one transaction; else it is all of it.
    """
    typing: ColumnTyping | None = None
    """How columns are typed; without it they are Postgres's texts."""
    maintenance_every: float = math.inf
    """Seconds between two rounds of ``maintain``."""

    def __init__(self, options: object, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self._commits = 0
        self._replaying: frozenset[int] = frozenset()
        self._last_noted: set[int] = set()
        # Tables of commits that ended well: nothing is in them that the ledger does not tell of.
        self._ended: set[int] = set()
        self._parking = threading.Lock()
        self._maintenance = Maintenance(self.name, self._lock)

    # -- what a member says ----------------------------------------------------------------------

    @property
    @abstractmethod
    def stage(self) -> FileStage: ...

    @abstractmethod
    def empty(self, target: Target) -> None:
        """Remove all rows."""

    @abstractmethod
    def apply(self, rows: MergedRows, at: Mark) -> Sequence[Key]:
        """Merge rows into their table, which stands at ``at`` then; the keys that were parked.
        Without transactions they are given to ``park`` before the table is committed.

        Raises TableRefused where the table does not take them.
        """

    @abstractmethod
    def load(self, target: Target, rows: pa.Table, *, over: bool) -> None:
        """Add copied rows, whose columns are named ``c0``, ``c1``, … after their places; ``over``
        puts them in place of rows with the same key.
        """

    def load_chunk(self, target: Target, chunk: StagedChunk) -> None:
        """Add the rows of a chunk. Where there are no transactions, the table has the chunk's mark
        then, for ``loaded``.
        """
        self.load(target, self.stage.get(chunk.file), over=chunk.again)

    def loaded(self, target: Target) -> int | None:
        """The mark of the chunk that a table took last; None without one, or where the ledger alone
        knows.
        """
        return None

    def chunk_stage(self, target: Target) -> ChunkStage:
        """Where tasks put chunks. A member that adds the files themselves has a place of its own,
        whose ``remove`` leaves them.
        """
        return self.stage

    def is_there(self, target: Target) -> bool:
        """Whether there is such a table. A member that looks makes one anew that somebody removed,
        when it is copied.
        """
        return True

    def has_rows(self, target: Target) -> bool:
        """Whether there is a row. A member that takes over tables looks."""
        return False

    def held(self, target: Target) -> Mark | None:
        """Where a table stands by itself; None where the ledger alone knows, or where the table is
        not there, but perhaps another one.
        """
        return None

    def maintain(self, target: Target) -> None:
        """Put together what many commits left in a table, and remove what nobody needs. Called
        between two batches, for tables that were written to. What it raises is told, and the table
        has its turn again.
        """

    def maintain_rest(self) -> None:
        """The same for what is no table's own, once all of them had their turn."""

    # -- before the first batch ------------------------------------------------------------------

    def open(self) -> None:
        with self._lock:
            self._ended.clear()
            self._driver = self.ledger.take_over()
            self._forget_notes_of_no_ledger()
            # First it is seen, then it looks: the driver before it finds its note, or is read.
            self._note(None)
            at = self.committed()
            self.stage.clean()
            self._remember(at)
            self.stage.forget_notes([each for each in self.stage.drivers() if each < self._driver])
            # What the drivers before it wrote to, nobody knows.
            self._maintenance.touched(self._known())

    def _forget_notes_of_no_ledger(self) -> None:
        """Who has this number or a later one, and is not the driver now, was counted by a ledger
        that somebody removed.
        """
        later = [driver for driver in self.stage.drivers() if driver >= self._driver]
        if later:
            self.ledger.write(self._driver, {})
            self.stage.forget_notes(later)

    # -- batches ---------------------------------------------------------------------------------

    def writer(self) -> TaskWriter:
        return self._writer(self._targets)

    def catchup_writer(self, tables: Collection[int]) -> TaskWriter:
        return self._writer({oid: self._targets[oid] for oid in tables})

    def _writer(self, targets: Mapping[int, Target]) -> TaskWriter:
        if self.capabilities.merges:
            return StagedWriter(self.stage, targets, self._replaying, self.typing)
        assert self.typing is not None  # noqa: S101
        return ChangeTableWriter(self.stage, targets, self.typing)

    def commit(self, receipts: Sequence[Receipt], watermarks: Watermarks) -> None:
        self.commit_sections([Rows(tuple(receipts))], watermarks)

    def section_writer(self, changes: Sequence[SchemaChange]) -> TaskWriter:
        targets = dict(self._targets)
        for change in changes:
            targets.update(self._after(change, targets))
        return self._writer(targets)

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
            self._maintain_if_due()
            return
        touched = {oid for batch in batches for oid in batch.touched()}
        with self._lock, self._until_ended(touched), self._changing() as notes:
            self._expect_as_told()
            targets, changed = dict(self._targets), dict[int, Target]()
            begun = self._begun()
            for number, step in enumerate(steps, start=1):
                if isinstance(step, MergeBatch):
                    there = _changed_since(begun, steps[number:])
                    rest = step.without(there)
                    self._apply(rest, targets, watermarks, len(steps) - number, notes)
                    self._note_unfit_parts(step, notes)
                else:
                    after = self._after(step, targets)
                    self._alter(step, targets, notes)
                    changed.update(after)
                    targets.update(after)
            commit = self._commits + 1
            notes["commits"] = str(commit)
            notes["progress"] = watermarks_text(watermarks)
        self._set_targets(changed)
        self._commits = commit
        self.stage.remove([file for batch in batches for file in batch.files])
        self._maintenance.touched(touched)
        self._maintain_if_due()

    @contextmanager
    def _until_ended(self, touched: set[int]) -> Iterator[None]:
        """A commit to these tables. How far each has come is asked anew where it breaks off."""
        try:
            yield
        except BaseException:
            self._ended.clear()
            raise
        self._ended |= touched

    def _maintain_if_due(self) -> None:
        self._maintenance.start_if_due(
            self.maintenance_every, self._maintain_table, self.maintain_rest
        )

    def _maintain_table(self, oid: int) -> None:
        if (target := self._targets.get(oid)) is not None:
            self.maintain(target)

    def close(self) -> None:
        self._maintenance.stop()

    def committed(self) -> Watermarks | None:
        """Of the last commit with rows, or of one without them that came after it."""
        found = self._told()
        if found is None:
            return None
        # A driver that died among the tables of a batch left some of them ahead of the others.
        ahead = {}
        begun = self._begun()
        for target in self._known().values():
            # To one that was changed meanwhile the whole transaction comes again.
            held = None if target.oid in begun else self.held(target)
            if held is not None and not held.lacking and held.frontier > found.at(target.oid):
                ahead[target.oid] = held.frontier
        return found.placed(ahead) if ahead else found

    def _told(self) -> Watermarks | None:
        notes = self.ledger.read("commits") | self.ledger.read("progress")
        # One whose answer was lost counts, too: what follows on it has another number.
        self._commits = int(notes.get("commits", 0))
        for driver in reversed(self.stage.drivers()):
            idle = json.loads(self.stage.noted(driver) or "{}")
            if idle.get("watermarks") and idle["commits"] == self._commits:
                return watermarks_from(idle["watermarks"])
        return watermarks_from(notes["progress"]) if "progress" in notes else None

    def _expect_as_told(self) -> None:
        """Raise BatchAgain where a commit whose answer was lost landed after the ledger was asked:
        this one may bring the same rows. Where tables tell by themselves, they are asked.
        """
        if self.capabilities.atomic:
            commits = self.ledger.read("commits").get("commits", 0)
            if int(commits) != self._commits:
                raise BatchAgain(
                    f"destination {self.name}: a commit whose answer was lost is there by now"
                )

    def _remember(self, watermarks: Watermarks | None) -> None:
        """Put a frontier that moved without rows down where it wakes nobody. Who finds a later
        driver there is stale; by then it has changed nothing but its own note.
        """
        self._note(watermarks)
        if self.stage.drivers()[-1:] != [self._driver]:
            raise fenced(self.name, self.pipeline)

    def _note(self, watermarks: Watermarks | None) -> None:
        text = None if watermarks is None else watermarks_text(watermarks)
        note = {"commits": self._commits, "watermarks": text}
        self.stage.note(self._driver, json.dumps(note))

    def _apply(
        self,
        batch: MergeBatch,
        targets: Mapping[int, Target],
        watermarks: Watermarks,
        lacking: int,
        notes: Notes,
    ) -> None:
        """Merge what a batch holds, and note what was parked and unfit."""

        begun = self._begun()

        def merge(oid: int) -> Sequence[Key]:
            emptied, parts = touched[oid]
            target, at = targets[oid], Mark(watermarks.at(oid), lacking, self._commits + 1)
            held = None if oid in self._ended else self.held(target)
            # Others may have been brought on since, and the transaction got another number.
            is_cut = held is not None and (held.lacking > 0 or oid in begun)
            if held is not None and (held.holds(at) or (is_cut and held.reaches(at))):
                return ()
            if not parts:
                return self.apply(no_rows(target, self.typing, emptied=emptied), at)
            kind, files = parts[0].kind, [self.stage.get(part.file) for part in parts]
            most = self.bytes_at_once if self.capabilities.atomic else sys.maxsize
            parked: list[Key] = []
            for number, some in enumerate(sliced(target, kind, files, most)):
                rows = joined(target, kind, some, emptied=emptied and number == 0)
                parked += self.apply(rows, at)
            return parked

        touched = batch.touched()
        if self.side_by_side == 1 or len(touched) < 2:
            found = [merge(oid) for oid in touched]
        else:
            with ThreadPoolExecutor(self.side_by_side) as pool:
                found = list(pool.map(merge, touched))
        for oid, keys in zip(touched, found, strict=True):
            notes.update({parked_note(oid, key): "" for key in keys})

    def park(self, target: Target, keys: Sequence[Key]) -> None:
        """Note at once that rows are to be read again. Once their table stands behind their changes
        these do not come again; and a row that is read for nothing does no harm.
        """
        if keys:
            with self._parking:  # tables are merged side by side
                notes = {parked_note(target.oid, key): "" for key in keys}
                self.ledger.write(self._driver, notes)

    def _note_unfit_parts(self, batch: MergeBatch, notes: Notes) -> None:
        for oid, (_, parts) in batch.touched().items():
            for part in parts:
                self._note_unfit(oid, part.unfit, notes)

    def _alter(self, change: SchemaChange, targets: Mapping[int, Target], notes: Notes) -> None:
        """Without transactions each change is noted before it is begun: after a crash those before
        it are not followed again, and where their tables are is known.
        """
        if self.capabilities.atomic:
            super()._alter(change, targets, notes)
            return
        followed, begun = self._followed(change, targets), self._begun()
        left = {
            oid: each
            for oid, each in followed.items()
            if oid not in begun or begun[oid].position <= change.position
        }
        begins = {
            oid: BegunChange(change.position, targets[oid], after)
            for oid, (_, after) in left.items()
            if oid not in begun or begun[oid].position < change.position
        }
        if begins:
            texts = {begun_note(oid): each.to_text() for oid, each in begins.items()}
            self.ledger.write(self._driver, texts)
        for oid, (table, after) in left.items():
            self.alter(table, targets[oid], after)
        for oid, (_, after) in followed.items():
            notes |= {f"table/{oid}": after.to_text(), begun_note(oid): None}

    def _begun(self) -> Mapping[int, BegunChange]:
        return {} if self.capabilities.atomic else begun_changes(self.ledger)

    def _places(self, table: int) -> Sequence[Target]:
        begun = self._begun().get(table)
        if begun is None:
            return super()._places(table)
        # Where the change goes to there may be something else, which refused it.
        return [begun.before, *([begun.after] if self.is_there(begun.after) else ())]

    def _all_places(self) -> list[Target]:
        """What the tables are, or may be."""
        begun = self._begun()
        return [
            place
            for oid, target in self._known().items()
            for place in ((begun[oid].before, begun[oid].after) if oid in begun else (target,))
        ]

    @property
    def unfit_policy(self) -> Unfit:
        return self.typing.unfit if self.typing else "refuse"

    # -- copies ----------------------------------------------------------------------------------

    def has_foreign_rows(self, table: TableDefinition) -> bool:
        # To a change table the stream comes before the copy.
        if not self.capabilities.merges or self._copy(table.oid):
            return False
        return self.has_rows(self._targets[table.oid])

    def fit_table(self, table: TableDefinition, former: Sequence[TableDefinition]) -> None:
        places = self._places(table.oid)
        if places and not any(map(self.is_there, places)):
            self.drop_table(table)  # ``prepare`` makes what nobody knows of
        super().fit_table(table, former)

    def truncate_table(self, table: TableDefinition) -> None:
        """A change table keeps its rows: they are history."""
        with self._changing() as notes:
            target = self._targets[table.oid]
            if not self.is_there(target):
                definition, _ = self._held_as(table, self._known().get(table.oid))
                self.create(definition, target)
            if self.capabilities.merges:
                self.empty(target)
            self._forget_copy(table, notes)
            # Chunks of earlier copies that are still being written have another name.
            notes[f"copy/{table.oid}/"] = uuid.uuid4().hex

    def chunk_writer(self, table: TableDefinition, *, again: bool = False) -> StagedChunkWriter:
        return self._chunk_writer(self._targets[table.oid], self._copy(table.oid), again)

    def chunk_ticket(self, table: TableDefinition, *, again: bool = False) -> Ticket:
        return {
            "driver": self._driver,
            "copy": self._copy(table.oid),
            "again": again,
            "target": self._targets[table.oid].to_text(),
        }

    def ticket_writer(self, table: TableDefinition, ticket: Ticket) -> StagedChunkWriter:
        """Without a look at the ledger: where that is a file, the driver alone can have it open."""
        if self.stage.drivers()[-1:] != [ticket["driver"]]:
            raise not_seen_here(self.name, self.stage.path)
        target = Target.of(table)
        if not self.capabilities.merges:
            target = replace(Target.from_text(ticket["target"]), source=target)
        return self._chunk_writer(target, ticket["copy"], ticket["again"])

    def _chunk_writer(self, target: Target, copy: str, again: bool) -> StagedChunkWriter:
        kind = StagedChunkWriter if self.capabilities.merges else ChangeTableChunkWriter
        return kind(self.chunk_stage(target), target, copy, again, self.typing)

    def commit_chunks(self, receipts: Sequence[ChunkReceipt]) -> None:
        chunks = [StagedChunk.from_bytes(receipt.content) for receipt in receipts]
        if self.capabilities.atomic:
            with self._changing() as notes:
                for chunk in chunks:
                    self._load(chunk, notes)
        else:
            for chunk in chunks:
                with self._changing() as notes:
                    self._note_last(chunk.table)
                    self._load(chunk, notes)
                self._last_noted.add(chunk.table)
        for chunk in chunks:
            self.chunk_stage(self._targets[chunk.table]).remove([chunk.file])

    def _note_last(self, table: int) -> None:
        """Note the chunk that the table took last, unless it surely is in the ledger: who brought
        it may have died before that, or had no answer. Then others may come before it comes again.
        """
        if table not in self._last_noted and (mark := self.loaded(self._targets[table])):
            self.ledger.write(self._driver, {f"loaded/{table}/{mark}": ""})
        self._last_noted.discard(table)

    def _load(self, chunk: StagedChunk, notes: Notes) -> None:
        name = f"chunk/{chunk.table}/{chunk.chunk}"
        is_new = name not in notes and name not in self.ledger.read(name)
        if is_new and chunk.copy == self._copy(chunk.table):
            if not self.ledger.read(f"loaded/{chunk.table}/{chunk.mark}"):
                self.load_chunk(self._targets[chunk.table], chunk)
            self._note_unfit(chunk.table, chunk.unfit, notes)
            notes[name] = ""

    def _copy(self, table: int) -> str:
        """Which copy of the table is under way."""
        return "".join(self.ledger.read(f"copy/{table}/").values())

    # -- replays ---------------------------------------------------------------------------------

    def replaying(self, tables: Collection[int]) -> None:
        self._replaying = frozenset(tables)

    def settle_parked(self, rows: TableRows, keys: Sequence[Key]) -> None:
        if not keys:
            return
        target = self._targets[rows.table.oid]
        places = target.places(rows.table)
        texts = [rows.columns[places[index]].to_pylist() for index in target.key]
        gone = list(set(keys) - set(zip(*texts, strict=True)))
        at = self.held(target) or Mark(NOTHING)
        with self._changing() as notes:
            if gone:
                self.apply(removed(target, gone, self.typing), at)
            unfit: Counter[str] = Counter()
            columns = copied_columns(target, places, rows, self.typing, unfit)
            names = [f"c{index}" for index in range(len(columns))]
            self.load(target, pa.table(columns, names=names), over=True)
            self._note_unfit(target.oid, unfit, notes)
            notes.update(dict.fromkeys(parked_note(target.oid, key) for key in keys))

    def forget(self) -> Sequence[str]:
        self.stage.clean()
        self.stage.forget_notes(self.stage.drivers())
        return super().forget()


def _changed_since(
    begun: Mapping[int, BegunChange], steps: Sequence[SchemaChange | MergeBatch]
) -> frozenset[int]:
    """Tables with which one of these steps was begun: rows that stand before it are there."""
    return frozenset(
        oid
        for step in steps
        if isinstance(step, SchemaChange)
        for oid in begun.keys() & {table.oid for table in step.tables}
        if step.position <= begun[oid].position
    )
