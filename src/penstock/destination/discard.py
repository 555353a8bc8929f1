"""``discard``: decodes every value to its type and writes nothing. For benchmarks and trials."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from penstock.decode.changes import ChangeSet
from penstock.destination.contract import (
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
    def write(self, changes: Iterable[ChangeSet]) -> Receipt:
        count = 0
        for part in changes:
            for table in part.tables:
                for column in range(len(table.table.columns)):
                    table.new_typed(column)
                    table.old_typed(column)
            count += len(part)
        return json.dumps({"changes": count}).encode()


class DiscardDestination(Destination):
    name = "discard"
    options_model = DiscardOptions
    capabilities = Capabilities(
        mode="append", exactly_once=False, remembers=False, atomic=True, batch_age=0.05
    )

    def open(self) -> None:
        pass

    def committed(self) -> Frontier | None:
        return None

    def task_writer(self) -> TaskWriter:
        return DiscardWriter()

    def commit(self, receipts: Sequence[Receipt], frontier: Frontier) -> None:
        pass

    def truncate_table(self, table: TableSchema) -> None:
        pass

    def write_table_rows(self, rows: TableRows, chunk: str) -> None:
        pass
