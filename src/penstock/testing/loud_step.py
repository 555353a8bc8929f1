"""A step as a transformer will be: it replaces a column, drops rows and renames."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.changes import ChangeSet, TableChanges, take_rows
from penstock.decode.given_image import GivenColumn, Values
from penstock.decode.row_values import RowValues
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import ChunkReader, TableRows
from penstock.model.table_schema import TableSchema
from penstock.pgoutput.tuples import Ints
from penstock.transform.changed_chunk import ChangedChunkReader
from penstock.transform.step import Step


@dataclass(frozen=True)
class LoudStep(Step):
    """Of one table: ``column`` is in upper case and called ``renamed``, and rows whose first column
    is an even number are dropped.
    """

    table: str
    column: str
    renamed: str

    def apply(self, changes: ChangeSet) -> ChangeSet:
        kept = [self._kept(table) if self._is_it(table.table) else None for table in changes.tables]
        tables = take_rows(changes.tables, kept)
        truncates = tuple(
            replace(event, tables=tuple(map(self._schema, event.tables)))
            for event in changes.truncates
        )
        return ChangeSet(
            tuple(self._changed(table) for table in tables if len(table)),
            truncates,
            changes.messages,
        )

    def copied(self, reader: ChunkReader) -> ChunkReader:
        if not self._is_it(reader.table):
            return reader
        return ChangedChunkReader(reader, self._schema(reader.table), self._rows)

    def definition(self, table: TableDefinition) -> TableDefinition:
        if table.name != self.table:
            return table
        columns = (
            replace(c, name=self.renamed) if c.name == self.column else c for c in table.columns
        )
        return replace(table, columns=tuple(columns))

    def _is_it(self, table: TableSchema) -> bool:
        return table.name == self.table

    def _kept(self, changes: TableChanges) -> Ints:
        return _odd(RowValues(changes).text(0))

    def _changed(self, changes: TableChanges) -> TableChanges:
        if not self._is_it(changes.table):
            return changes
        number = self._number(changes.table)
        given = GivenColumn(
            Values(pc.utf8_upper(changes.new_text(number)), changes.new_unset(number)),
            Values(pc.utf8_upper(changes.old_text(number)), changes.old_unset(number)),
        )
        columns: list[int | GivenColumn] = list(range(len(changes.table.columns)))
        columns[number] = given
        return changes.with_columns(self._schema(changes.table), columns)

    def _rows(self, rows: TableRows) -> TableRows:
        kept = pa.array(_odd(rows.columns[0]))
        columns = [column.take(kept) for column in rows.columns]
        number = self._number(rows.table)
        columns[number] = pc.utf8_upper(columns[number])
        return TableRows(self._schema(rows.table), tuple(columns), len(kept), rows.snapshot)

    def _number(self, table: TableSchema) -> int:
        return [column.name for column in table.columns].index(self.column)

    def _schema(self, table: TableSchema) -> TableSchema:
        if not self._is_it(table):
            return table
        columns = (
            replace(c, name=self.renamed) if c.name == self.column else c for c in table.columns
        )
        return replace(table, columns=tuple(columns))


def _odd(texts: pa.Array) -> Ints:
    numbers = texts.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return np.flatnonzero(numbers % 2 == 1)
