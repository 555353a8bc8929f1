"""Rows that are copied, after a step has changed them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from penstock.decode.copy_text import copy_lines
from penstock.decode.flat_columns import flat_table
from penstock.decode.flat_rows import decode_columns
from penstock.decode.text_bytes import text_bytes
from penstock.model.table_rows import ChunkReader, TableRows
from penstock.model.table_schema import TableSchema


class ChangedChunkReader(ChunkReader):
    """Reads texts, whatever it is asked for: those can be changed.

    ``table`` is what ``change`` makes of the reader's own; None from ``change``: no row passes.
    """

    has_binary = False

    def __init__(
        self,
        reader: ChunkReader,
        table: TableSchema,
        change: Callable[[TableRows], TableRows | None],
    ) -> None:
        self._reader = reader
        self._change = change
        self.table = table
        self.chunk = reader.chunk
        self.snapshot = reader.snapshot

    def texts(self) -> Iterator[TableRows]:
        for rows in self._reader.texts():
            changed = self._change(rows)
            if changed is not None:
                yield changed

    def typed(self) -> Iterator[pa.RecordBatch]:
        flat = flat_table(self.table)
        schema = pa.schema([*(column.field for column in flat.columns), flat.schema.field("_raw")])
        for rows in self.texts():
            columns, raw = decode_columns(self.table, rows.columns, len(rows))
            yield pa.RecordBatch.from_arrays([*columns, raw], schema=schema)

    def raw(self, *, binary: bool) -> Iterator[bytes]:
        if binary:
            raise NotImplementedError("rows that were changed have no binary form any more")
        for rows in self.texts():
            yield bytes(text_bytes(copy_lines(rows.columns, len(rows))))


class EmptyChunkReader(ChangedChunkReader):
    """A chunk of which no row passes: it is not even read."""

    def __init__(self, reader: ChunkReader) -> None:
        super().__init__(reader, reader.table, lambda _rows: None)

    def texts(self) -> Iterator[TableRows]:
        return iter(())
