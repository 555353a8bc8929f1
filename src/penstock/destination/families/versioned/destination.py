"""The driver's side of what search engines and key-value stores share."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Sequence

from penstock.decode.row_values import READ_ORDINAL
from penstock.destination.contract import ChunkReceipt, Receipt, Rows, SchemaChange
from penstock.destination.families.kept_tables import KeptTables, after_change
from penstock.destination.families.ledger import watermarks_from, watermarks_text
from penstock.destination.families.target import Target
from penstock.destination.families.versioned.documents import DocumentStore
from penstock.destination.families.versioned.task_writer import (
    VersionedChunkWriter,
    VersionedWriter,
)
from penstock.model.errors import TableRefused
from penstock.model.lsn import Position
from penstock.model.table_definition import TableDefinition
from penstock.model.watermarks import Watermarks


class VersionedDestination(KeptTables):
    """Executors write documents at once, each with its position; of two the older one loses, so
    that all may come again. The driver stores how far they are, last.

    A member gives it a ledger and a document store, and says how tables are made, dropped and
    changed. Rows of a table without a key are documents under their positions: they can come, and
    be truncated, but a change of one refuses the table.
    """

    @property
    @abstractmethod
    def store(self) -> DocumentStore: ...

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

    def writer(self) -> VersionedWriter:
        return VersionedWriter(self.store, self._targets)

    def commit(self, receipts: Sequence[Receipt], watermarks: Watermarks) -> None:
        with self._changing() as notes:
            notes["progress"] = watermarks_text(watermarks)

    def section_writer(self, changes: Sequence[SchemaChange]) -> VersionedWriter:
        """Rows behind a schema change are written at once, so tables follow before them."""
        self._follow(changes)
        return self.writer()

    def commit_sections(
        self, sections: Sequence[SchemaChange | Rows], watermarks: Watermarks
    ) -> None:
        self._follow([section for section in sections if isinstance(section, SchemaChange)])
        self.commit((), watermarks)

    def _follow(self, changes: Sequence[SchemaChange]) -> None:
        for change in changes:
            with self._changing() as notes:
                done = json.loads(self.ledger.read("schema").get("schema", "[]"))
                if [*change.position] > done:
                    self._alter(change, self._targets, notes)
                    notes["schema"] = json.dumps(change.position)
            self._targets = {**self._targets, **after_change(change, self._targets)}

    # -- copies ----------------------------------------------------------------------------------

    def truncate_table(self, table: TableDefinition) -> None:
        """What is there stays until the copy is finished, and what it did not bring goes then:
        changes that came after the snapshot are among it.
        """
        with self._changing() as notes:
            self._forget_copy(table, notes)

    def chunk_writer(self, table: TableDefinition, *, again: bool = False) -> VersionedChunkWriter:
        return VersionedChunkWriter(self.store, self._targets[table.oid])

    def commit_chunks(self, receipts: Sequence[ChunkReceipt]) -> None:
        with self._changing() as notes:
            for receipt in receipts:
                oid, snapshot = json.loads(receipt.content)
                name = f"copy/{oid}/"
                known = notes.get(name) or self.ledger.read(name).get(name)
                notes[name] = str(min(snapshot, int(known or snapshot)))

    def finish_copy(self, table: TableDefinition) -> None:
        """Remove what is older than the copy. Raises TableRefused where a document lacks columns:
        its row moved within the table between two snapshots, so neither has it.
        """
        target, name = self._targets[table.oid], f"copy/{table.oid}/"
        with self._changing():
            if (snapshot := self.ledger.read(name).get(name)) is not None:
                self.store.forget_before(target, Position(int(snapshot), READ_ORDINAL))
            lacking = self.store.lacking(target)
        if lacking:
            raise TableRefused(
                f"table {target.qualified_name}: {lacking} rows changed while they were copied "
                "under two snapshots, and neither has all of their columns",
                remedy=f"run `penstock tables resync` for {target.qualified_name}",
                table=table.oid,
            )
