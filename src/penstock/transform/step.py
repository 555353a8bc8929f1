"""What stands between decode and a destination: steps that changes and copied rows go through."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

from penstock.decode.changes import ChangeSet
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import ChunkReader, TableRows
from penstock.model.table_schema import TableSchema


class Step(ABC):
    """One of them. The driver makes it, and it is pickled to the executors, where tasks call it.

    It can drop changes (``ChangeSet``, ``take_rows``), and give tables and their columns other
    names, types and values (``TableChanges.with_columns``). What is true of both images of a row
    has to be done to both, and what is done to changes, to copied rows as well.
    """

    is_slow: bool = False
    """It takes longer than all else that a task does: worth several tasks."""

    @abstractmethod
    def apply(self, changes: ChangeSet) -> ChangeSet:
        """What becomes of a run of changes. Those that stay keep their order and positions.

        Raises a PenstockError where that cannot be told.
        """

    def copied(self, reader: ChunkReader) -> ChunkReader:
        """What becomes of a chunk that is copied: ``ChangedChunkReader`` where its rows do not stay
        as they are, and the reader itself for all others, which keep the fastest way to be copied.
        """
        return reader

    def definition(self, table: TableDefinition) -> TableDefinition:
        """What a destination that holds rows is told of a table, on the driver: it has to suit what
        becomes of the table's changes.
        """
        return table

    def marked(self, table: TableDefinition) -> TableDefinition:
        """The table with the mark of what this step does to it: another one where the destination
        would hold other rows or values.
        """
        return table

    def source_keys(
        self, table: TableDefinition, keys: Sequence[tuple[str, ...]]
    ) -> Sequence[tuple[str, ...]]:
        """Keys of the destination, as the source has them. Raises TableRefused where nobody knows.

        The driver asks for rows by them that a replay could not complete.
        """
        return keys

    def reading(self, table: TableSchema | TableDefinition) -> AbstractContextManager[None]:
        """Around whatever reads rows of a table from the source, for its errors."""
        return nullcontext()

    def read_again(self, rows: TableRows) -> TableRows:
        """What becomes of such rows, on the driver: the same as of copied ones."""
        return rows

    def passes_table(self, schema: str, table: str) -> bool:
        """Whether anything of a table can pass."""
        return True

    def definitions(self, tables: Iterable[TableDefinition]) -> list[TableDefinition]:
        """The tables that pass, each as a destination that holds rows is told of it."""
        passing = (table for table in tables if self.passes_table(table.schema, table.name))
        return list(map(self.definition, passing))

    def take_filtered(self) -> Counter[tuple[str, str]]:
        """How many changes and rows were dropped since the last time, by table and reason."""
        return Counter()


def marked_by(table: TableDefinition, steps: Iterable[Step | None]) -> TableDefinition:
    """The table with the marks of these steps, and no others."""
    table = replace(table, transform="", rows="")
    for step in steps:
        table = table if step is None else step.marked(table)
    return table


def filtered_by(steps: Iterable[Step]) -> Counter[tuple[str, str]]:
    """What steps have dropped since they were asked last."""
    return sum((step.take_filtered() for step in steps), Counter())
