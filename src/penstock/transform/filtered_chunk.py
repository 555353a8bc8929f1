"""Rows that are copied, as far as the filter lets them pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa

from penstock.decode.copy_text import copy_lines
from penstock.decode.flat_columns import flat_table
from penstock.decode.flat_rows import decode_columns
from penstock.decode.text_bytes import text_bytes
from penstock.model.table_rows import ChunkReader, TableRows
from penstock.transform.filter import Filter


class FilteredChunkReader(ChunkReader):
    """Reads texts, whatever it is asked for: those can be filtered."""

    def __init__(self, reader: ChunkReader, wanted: Filter) -> None:
        self._reader = reader
        self._filter = wanted
        columns = wanted.selected_columns(reader.table)
        self.table = reader.table
        if columns is not None:
            narrow = tuple(reader.table.columns[number] for number in columns)
            self.table = replace(reader.table, columns=narrow)
        self.chunk = reader.chunk
        self.snapshot = reader.snapshot

    def texts(self) -> Iterator[TableRows]:
        if not self._filter.passes_copied(self.table.schema, self.table.name):
            return
        for rows in self._reader.texts():
            passing = self._filter.apply_rows(rows)
            if passing is not None:
                yield passing

    def typed(self) -> Iterator[pa.RecordBatch]:
        flat = flat_table(self.table)
        schema = pa.schema([*(column.field for column in flat.columns), flat.schema.field("_raw")])
        for rows in self.texts():
            columns, raw = decode_columns(self.table, rows.columns, len(rows))
            yield pa.RecordBatch.from_arrays([*columns, raw], schema=schema)

    def raw(self, *, binary: bool) -> Iterator[bytes]:
        if binary:
            raise NotImplementedError("rows that are filtered have no binary form any more")
        for rows in self.texts():
            yield bytes(text_bytes(copy_lines(rows.columns, len(rows))))
