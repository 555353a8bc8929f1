"""``discard``: decodes every value to its type and writes nothing. It measures all the rest."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from penstock.decode.changes import ChangeSet, TableChanges
from penstock.decode.typed import decode_text
from penstock.destination.contract import (
    Behind,
    Capabilities,
    Destination,
    DestinationOptions,
    Receipt,
    TableRows,
    TaskWriter,
)
from penstock.lsn import Frontier
from penstock.table_schema import TableSchema


class DiscardOptions(DestinationOptions):
    """It has none."""


class DiscardWriter(TaskWriter):
    """Decodes its changes; the receipt counts them and the bytes of their Arrow values."""

    def write(self, changes: Iterable[ChangeSet]) -> Receipt:
        count = size = 0
        for part in changes:
            count += len(part)
            size += sum(map(_decode, part.tables))
            size += sum(len(message.content) for message in part.messages)
        return json.dumps({"changes": count, "bytes": size}).encode()


class DiscardDestination(Destination):
    """Counts what it is given: ``changes`` and ``bytes`` since it was made."""

    name = "discard"
    options_model = DiscardOptions
    capabilities = Capabilities(
        mode="append", exactly_once=False, remembers=False, atomic=False, batch_age=0.05
    )

    def __init__(self, options: DiscardOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self.changes = 0
        self.bytes = 0

    def open(self) -> None:
        """There is nothing to take over."""

    def committed(self) -> Frontier | None:
        return None

    def task_writer(self) -> DiscardWriter:
        return DiscardWriter()

    def commit(
        self, receipts: Sequence[Receipt], frontier: Frontier, behind: Behind | None = None
    ) -> None:
        for receipt in map(json.loads, receipts):
            self.changes += receipt["changes"]
            self.bytes += receipt["bytes"]

    def truncate_table(self, table: TableSchema) -> None:
        """There is nothing to empty."""

    def write_table_rows(self, rows: TableRows, chunk: str) -> None:
        self.changes += len(rows)
        for column, text in zip(rows.table.columns, rows.columns, strict=True):
            self.bytes += decode_text(text, column.type, column.typmod).values.nbytes


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
