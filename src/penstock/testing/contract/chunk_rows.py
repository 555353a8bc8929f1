"""Chunks without a server: rows that are given, in every form that a ChunkReader has."""

from __future__ import annotations

import json
import pickle
import struct
from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.decode.copy_text import copy_lines
from penstock.decode.flat_columns import flat_table
from penstock.decode.flat_rows import decode_columns
from penstock.decode.text_bytes import text_bytes
from penstock.destination.contract import ChunkReceipt
from penstock.destination.memory import Row
from penstock.destination.protocols import CopiedByWorkers, TakesCopies
from penstock.model.lsn import Frontier
from penstock.model.table_rows import ChunkReader, TableRows
from penstock.model.table_schema import TableSchema
from penstock.testing.change_builder import ChangeBuilder, Table
from penstock.testing.contract.deliveries import definition

SNAPSHOT = Frontier(0x50, 0x58)

Values = Sequence[str | None]

_INTEGERS = {"int2": ">h", "int4": ">i", "int8": ">q"}
_TEXTS = {"text", "varchar", "json"}


def table_schema(of: Table) -> TableSchema:
    """What the stream says of a table."""
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(of, *[None for _ in of.columns])
    return builder.cut().tables[0].table


class ChunkRows(ChunkReader):
    """Gives ``piece`` rows at a time, an empty piece in the end, and all only once.

    With ``error`` it fails after the first.
    """

    def __init__(
        self,
        of: Table,
        chunk: str,
        rows: Sequence[Values],
        snapshot: Frontier = SNAPSHOT,
        *,
        piece: int = 2,
        error: Exception | None = None,
    ) -> None:
        self.of = of
        self.table = table_schema(of)
        self.chunk = chunk
        self.snapshot = snapshot
        self.rows = rows
        self._piece = piece
        self._error = error
        self._is_read = False

    def raw(self, *, binary: bool) -> Iterator[bytes]:
        if binary:
            yield b"PGCOPY\n\xff\r\n\0" + bytes(8)
        for piece in self._pieces():
            if binary:
                yield b"".join(map(self._binary_row, piece))
            else:
                yield bytes(text_bytes(copy_lines(self._columns(piece), len(piece))))
        if binary:
            yield b"\xff\xff"

    def texts(self) -> Iterator[TableRows]:
        for piece in self._pieces():
            yield TableRows(self.table, tuple(self._columns(piece)), len(piece), self.snapshot)

    def typed(self) -> Iterator[pa.RecordBatch]:
        flat = flat_table(self.table)
        fields = [column.field for column in flat.columns]
        schema = pa.schema([*fields, flat.schema.field("_raw")])
        for piece in self._pieces():
            columns, raw = decode_columns(self.table, self._columns(piece), len(piece))
            yield pa.RecordBatch.from_arrays([*columns, raw], schema=schema)

    def named_rows(self) -> list[Row]:
        names = [column.name for column in self.table.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def _pieces(self) -> Iterator[Sequence[Values]]:
        assert not self._is_read, "a chunk is read once"
        self._is_read = True
        for first in range(0, len(self.rows), self._piece):
            yield self.rows[first : first + self._piece]
            if self._error is not None:
                raise self._error
        yield []

    def _columns(self, rows: Sequence[Values]) -> list[pa.Array]:
        return [
            pa.array([row[number] for row in rows], pa.string())
            for number in range(len(self.table.columns))
        ]

    def _binary_row(self, row: Values) -> bytes:
        parts = [struct.pack(">h", len(row))]
        for text, column in zip(row, self.table.columns, strict=True):
            if text is None:
                parts.append(struct.pack(">i", -1))
                continue
            if (layout := _INTEGERS.get(column.type.name)) is not None:
                data = struct.pack(layout, int(text))
            else:
                assert column.type.name in _TEXTS, f"no binary form here of {column.type.name}"
                data = text.encode()
            parts.append(struct.pack(">i", len(data)) + data)
        return b"".join(parts)


def write_chunks(
    destination: TakesCopies, *chunks: ChunkRows, again: bool = False
) -> list[ChunkReceipt]:
    """What tasks do: each chunk's writer goes to its executor as bytes."""
    return [
        pickle.loads(  # noqa: S301
            pickle.dumps(destination.chunk_writer(definition(chunk.of), again=again))
        ).write(chunk)
        for chunk in chunks
    ]


def write_elsewhere(
    destination: CopiedByWorkers,
    worker: CopiedByWorkers,
    *chunks: ChunkRows,
    again: bool = False,
) -> list[ChunkReceipt]:
    """What `penstock copy` does: a worker that opened nothing writes by the driver's tickets."""
    receipts = []
    for chunk in chunks:
        table = definition(chunk.of)
        ticket = json.loads(json.dumps(destination.chunk_ticket(table, again=again)))
        receipts.append(worker.ticket_writer(table, ticket).write(chunk))
    return receipts


def copy_chunks(destination: TakesCopies, *chunks: ChunkRows, again: bool = False) -> None:
    destination.commit_chunks(write_chunks(destination, *chunks, again=again))
