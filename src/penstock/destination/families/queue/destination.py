"""The driver's side of what all queues share: events of schema changes go between those of rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import pyarrow as pa

from penstock.destination.contract import (
    ChunkReceipt,
    ChunkWriter,
    Destination,
    Rows,
    SchemaChange,
    TaskWriter,
)
from penstock.destination.families.queue.events import Encoder
from penstock.destination.families.queue.formats import Formats
from penstock.destination.protocols import CopiedByWorkers, FollowsSchema, Ticket
from penstock.model.lsn import Position
from penstock.model.table_definition import TableDefinition
from penstock.model.watermarks import Watermarks


class QueueDestination(Destination, CopiedByWorkers, FollowsSchema):
    """Sends every change, and keeps all that was sent."""

    chunks_stand = True
    _formats: Formats

    def section_writer(self, changes: Sequence[SchemaChange]) -> TaskWriter:
        """Rows behind a schema change are sent at once, so its event goes before them."""
        self._follow(changes)
        return self.writer()

    def commit_sections(
        self, sections: Sequence[SchemaChange | Rows], watermarks: Watermarks
    ) -> None:
        self._follow([section for section in sections if isinstance(section, SchemaChange)])
        rows = [section for section in sections if isinstance(section, Rows)]
        self.commit([receipt for section in rows for receipt in section.receipts], watermarks)

    def commit_chunks(self, receipts: Sequence[ChunkReceipt]) -> None:
        """What writers sent is there."""

    def chunk_ticket(self, table: TableDefinition, *, again: bool = False) -> Ticket:
        return {}

    def ticket_writer(self, table: TableDefinition, ticket: Ticket) -> ChunkWriter:
        self._formats.know([table])
        return self.chunk_writer(table)

    def truncate_table(self, table: TableDefinition) -> None:
        """A queue keeps its history."""

    def _follow(self, changes: Sequence[SchemaChange]) -> None:
        """Send the events of schema changes that were not sent yet, and go by what they tell."""
        for change in changes:
            if self._was_told(change.position):
                continue
            self.prepare([table.after for table in change.tables if table.after is not None])
            self._tell_schema(change.position, self._encoder().schema_change(change))

    @abstractmethod
    def _encoder(self) -> Encoder:
        """For events of tables as they are known now."""

    @abstractmethod
    def _was_told(self, position: Position) -> bool:
        """Whether the events of the schema change at this position were sent."""

    @abstractmethod
    def _tell_schema(self, position: Position, events: pa.RecordBatch) -> None:
        """Send them, and remember it."""
