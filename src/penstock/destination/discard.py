"""``discard``: reads all that it is given and writes nothing. It measures all the rest."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from penstock.destination.contract import (
    Capabilities,
    ChunkReceipt,
    ChunkWriter,
    DestinationOptions,
    Receipt,
    SchemaChange,
    TaskWriter,
)
from penstock.destination.families.append import AppendDestination
from penstock.destination.protocols import CopiedByWorkers, Ticket
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import ChunkReader
from penstock.model.watermarks import Watermarks

if TYPE_CHECKING:
    from penstock.decode.changes import ChangeSet, TableChanges


class DiscardOptions(DestinationOptions):
    """``typed``: copied rows are read into Arrow types, too, as streamed ones always are."""

    typed: bool = False


class DiscardWriter(TaskWriter):
    """Decodes its changes; the receipt counts them and the bytes of their Arrow values."""

    def write(self, changes: Iterable[ChangeSet]) -> Receipt:
        count = size = 0
        for part in changes:
            count += len(part)
            size += sum(map(_decode, part.tables))
            size += sum(len(message.content) for message in part.messages)
        return json.dumps({"changes": count, "bytes": size}).encode()


class DiscardChunkWriter(ChunkWriter):
    """Counts rows and bytes: those of COPY's text, or of the Arrow values."""

    def __init__(self, typed: bool) -> None:
        self._typed = typed

    def write(self, rows: ChunkReader) -> ChunkReceipt:
        count = size = 0
        if self._typed:
            for batch in rows.typed():
                count += batch.num_rows
                size += batch.nbytes
        else:
            for piece in rows.raw(binary=False):
                count += piece.count(b"\n")  # within a value it would be escaped
                size += len(piece)
        return ChunkReceipt(count, size)


class DiscardDestination(AppendDestination, CopiedByWorkers):
    """Counts what it is given: ``changes`` and ``bytes`` of the stream since it was made, and
    ``copied_rows`` and ``copied_bytes`` of chunks, and ``schema_changes``.
    """

    name = "discard"
    chunks_stand = True
    options_model = DiscardOptions
    capabilities = Capabilities(
        mode="append", exactly_once=False, remembers=False, atomic=False, batch_age=0.05
    )

    def __init__(self, options: DiscardOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self.changes = 0
        self.bytes = 0
        self.schema_changes = 0
        self.copied_rows = 0
        self.copied_bytes = 0

    def open(self) -> None:
        """There is nothing to take over."""

    def committed(self) -> Watermarks | None:
        return None

    def writer(self) -> DiscardWriter:
        return DiscardWriter()

    def commit(self, receipts: Sequence[Receipt], watermarks: Watermarks) -> None:
        for receipt in map(json.loads, receipts):
            self.changes += receipt["changes"]
            self.bytes += receipt["bytes"]

    def schema_receipts(self, change: SchemaChange) -> Sequence[Receipt]:
        self.schema_changes += 1
        return ()

    def chunk_writer(self, table: TableDefinition, *, again: bool = False) -> DiscardChunkWriter:
        return DiscardChunkWriter(self.options.typed)

    def chunk_ticket(self, table: TableDefinition, *, again: bool = False) -> Ticket:
        return {}

    def ticket_writer(self, table: TableDefinition, ticket: Ticket) -> DiscardChunkWriter:
        return self.chunk_writer(table)

    def commit_chunks(self, receipts: Sequence[ChunkReceipt]) -> None:
        for receipt in receipts:
            self.copied_rows += receipt.rows
            self.copied_bytes += receipt.bytes


def _decode(changes: TableChanges) -> int:
    """Decode every value that was sent; the bytes that they take in Arrow."""
    table = changes.table
    columns: Sequence[int] = range(len(table.columns))
    size = 0
    if len(changes.new_rows):
        size += sum(changes.new_typed(column).values.nbytes for column in columns)
    if len(changes.old_rows):
        if not changes.old_is_full.any():
            columns = table.key_columns  # a key image holds nothing else
        size += sum(changes.old_typed(column).values.nbytes for column in columns)
    return int(size)
