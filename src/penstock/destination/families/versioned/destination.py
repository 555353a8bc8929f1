"""The driver's side of what search engines and key-value stores share."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Collection, Sequence

import numpy as np
import pyarrow as pa

from penstock.decode.row_values import READ_ORDINAL
from penstock.destination.contract import (
    ChunkReceipt,
    ChunkWriter,
    Receipt,
    Rows,
    SchemaChange,
    TaskWriter,
)
from penstock.destination.families.change_tables.kept_changes import KeptChanges
from penstock.destination.families.kept_tables import Key, parked_note
from penstock.destination.families.ledger import watermarks_from, watermarks_text
from penstock.destination.families.target import Target
from penstock.destination.families.versioned.documents import (
    DocumentStore,
    document_ids,
    key_rows,
    tombstones,
)
from penstock.destination.families.versioned.task_writer import (
    VersionedChunkWriter,
    VersionedWriter,
    copied_documents,
)
from penstock.destination.protocols import TakesReplays
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import TableRows
from penstock.model.watermarks import Watermarks


class VersionedDestination(KeptChanges, TakesReplays):
    """Executors write documents at once, each with its position; of two the older one loses, so
    that all may come again. The driver stores how far they are, last.

    A member gives it a ledger and a document store, and says how tables are made, dropped, changed
    and copied anew. Rows of a table without a key are documents under their positions: they can
    come, and be truncated, but a change of one refuses the table.
    """

    def __init__(self, options: object, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self._replaying: frozenset[int] = frozenset()

    @property
    @abstractmethod
    def store(self) -> DocumentStore:
        """For the tasks of the next batch, and for the driver itself."""

    @abstractmethod
    def begin_copy(self, table: TableDefinition, target: Target) -> None:
        """Make an empty place for the rows of a table, which from now on are written there. What
        others still write to where its rows were must not get there.
        """

    def were_written(self, tables: Collection[int], emptied: Collection[int]) -> None:
        """The stream brought rows of these tables, and truncated some. Called before the commit."""

    def open(self) -> None:
        self._driver = self.ledger.take_over()

    def _fits(self, there: Target, target: Target) -> bool:
        """Columns may be there that come with a change: a driver died after it had followed it, and
        before it could say so.
        """
        same = (there.schema, there.name, there.key) == (target.schema, target.name, target.key)
        return same and there.columns[: len(target.columns)] == target.columns

    def committed(self) -> Watermarks | None:
        notes = self.ledger.read("progress")
        return watermarks_from(notes["progress"]) if notes else None

    def writer(self) -> TaskWriter:
        return VersionedWriter(self.store, self._targets, self._replaying)

    def commit(self, receipts: Sequence[Receipt], watermarks: Watermarks) -> None:
        with self._changing() as notes:
            written: set[int] = set()
            emptied: set[int] = set()
            for told in map(json.loads, receipts):
                written.update(told["written"])
                emptied.update(told["emptied"])
                for oid, keys in told["parked"].items():
                    notes.update(dict.fromkeys((parked_note(oid, key) for key in keys), ""))
                for oid, unfit in told["unfit"].items():
                    self._note_unfit(oid, unfit, notes)
            self.were_written(written, emptied)
            notes["progress"] = watermarks_text(watermarks)

    def section_writer(self, changes: Sequence[SchemaChange]) -> TaskWriter:
        """Rows behind a schema change are written at once, so tables follow before them."""
        self._follow(changes)
        return self.writer()

    def commit_sections(
        self, sections: Sequence[SchemaChange | Rows], watermarks: Watermarks
    ) -> None:
        self._follow([section for section in sections if isinstance(section, SchemaChange)])
        receipts = [
            r for section in sections if isinstance(section, Rows) for r in section.receipts
        ]
        self.commit(receipts, watermarks)

    def _follow(self, changes: Sequence[SchemaChange]) -> None:
        for change in changes:
            after = self._after(change, self._targets)
            with self._changing() as notes:
                done = json.loads(self.ledger.read("schema").get("schema", "[]"))
                if [*change.position] > done:
                    self._alter(change, self._targets, notes)
                    notes["schema"] = json.dumps(change.position)
            self._set_targets(after)

    def let_go(self, table: TableDefinition) -> None:
        """Nothing: its rows are in places of its own, which have its number."""

    # -- copies ----------------------------------------------------------------------------------

    def truncate_table(self, table: TableDefinition) -> None:
        with self._changing() as notes:
            self.begin_copy(table, self._targets[table.oid])
            self._forget_copy(table, notes)

    def chunk_writer(self, table: TableDefinition, *, again: bool = False) -> ChunkWriter:
        return VersionedChunkWriter(self.store, self._targets[table.oid])

    def commit_chunks(self, receipts: Sequence[ChunkReceipt]) -> None:
        """What tasks wrote is there: fence, and note what was unfit."""
        with self._changing() as notes:
            for receipt in receipts:
                for oid, unfit in json.loads(receipt.content).items():
                    self._note_unfit(oid, unfit, notes)

    # -- replays ---------------------------------------------------------------------------------

    def catchup_writer(self, tables: Collection[int]) -> TaskWriter:
        targets = {oid: self._targets[oid] for oid in tables}
        return VersionedWriter(self.store, targets, self._replaying)

    def replaying(self, tables: Collection[int]) -> None:
        self._replaying = frozenset(tables)

    def settle_parked(self, rows: TableRows, keys: Sequence[Key]) -> None:
        """What was read again is newer than all that was replayed, and older than what follows."""
        target, store = self._targets[rows.table.oid], self.store
        made = copied_documents(store, target, rows)
        parked = self._parked(rows, target, keys)
        there = pa.compute.is_in(parked["id"], made["id"].combine_chunks())
        gone = parked.filter(pa.compute.invert(there))
        lsn = np.full(gone.num_rows, rows.snapshot.commit_lsn, np.int64)
        ordinal = np.full(gone.num_rows, READ_ORDINAL, np.int64)
        with self._changing() as notes:
            if made.num_rows:
                store.put(target, made)
            if gone.num_rows:
                store.put(target, tombstones(target, gone, lsn, ordinal))
            notes.update(dict.fromkeys(parked_note(target.oid, key) for key in keys))
            for oid, unfit in store.unfit.items():
                self._note_unfit(oid, unfit, notes)

    def _parked(self, rows: TableRows, target: Target, keys: Sequence[Key]) -> pa.Table:
        """Keys as the store has them."""
        texts = [
            pa.array([key[place] for key in keys], pa.string()) for place in range(len(target.key))
        ]
        places = target.places(rows.table)
        types = [rows.table.columns[places[index]].type for index in target.key]
        values = [
            self.store.values(text, pg_type) for text, pg_type in zip(texts, types, strict=True)
        ]
        return key_rows(target, document_ids(texts), values)
