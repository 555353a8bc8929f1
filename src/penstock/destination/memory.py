"""``memory``: the reference that the contract suite holds the others against.

What it holds lives in the driver's process, so it survives a new Destination, not a new process.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
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
from penstock.model.errors import Fenced
from penstock.model.lsn import Position
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import ChunkReader, TableRows
from penstock.model.table_schema import TableSchema
from penstock.model.watermarks import Watermarks

if TYPE_CHECKING:
    from penstock.decode.changes import ChangeSet, TableChanges

TableName = tuple[str, str]
"""Schema and name."""
Row = dict[str, str | None]
"""Values as Postgres text. A column that was not sent is not there."""

_OPS = {ord("I"): "insert", ord("U"): "update", ord("D"): "delete"}


@dataclass(frozen=True)
class MemoryChange:
    """One change: ``new`` and ``old`` hold the columns whose values Postgres sent."""

    position: Position
    op: str
    tables: tuple[TableName, ...]
    new: Row | None = None
    old: Row | None = None
    prefix: str | None = None
    content: bytes | None = None


@dataclass
class MemoryDeliveries:
    """What one pipeline has delivered.

    ``copied`` are the rows that were copied, as changes with the op ``read``; ``chunks`` which
    chunks of which table's present copy are among them.
    """

    changes: list[MemoryChange] = field(default_factory=list)
    copied: list[MemoryChange] = field(default_factory=list)
    chunks: set[tuple[TableName, str]] = field(default_factory=set)
    watermarks: Watermarks | None = None
    driver: int = 0


_stores: dict[str, MemoryDeliveries] = {}


def memory_store(pipeline: str) -> MemoryDeliveries:
    """What the pipeline has delivered in this process; made empty where it is new."""
    return _stores.setdefault(pipeline, MemoryDeliveries())


def forget(pipeline: str) -> None:
    _stores.pop(pipeline, None)


class MemoryOptions(DestinationOptions):
    """It has none."""


class MemoryWriter(TaskWriter):
    """The changes travel in the receipt."""

    def write(self, changes: Iterable[ChangeSet]) -> Receipt:
        found: list[MemoryChange] = []
        for part in changes:
            found.extend(sorted(_changes(part), key=lambda change: change.position))
        return pickle.dumps(found)


class MemoryChunkWriter(ChunkWriter):
    """The rows travel in the receipt."""

    def write(self, rows: ChunkReader) -> ChunkReceipt:
        found: list[MemoryChange] = []
        size = 0
        for piece in rows.texts():
            found += _copied(piece)
            size += sum(column.nbytes for column in piece.columns)
        content = pickle.dumps(((_name(rows.table), rows.chunk), found))
        return ChunkReceipt(len(found), size, content)


class MemoryDestination(AppendDestination):
    """Keeps every change in order, with the frontier."""

    name = "memory"
    options_model = MemoryOptions
    capabilities = Capabilities(
        mode="append", exactly_once=True, remembers=True, atomic=True, batch_age=0.05
    )

    def __init__(self, options: MemoryOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self._driver = 0

    def open(self) -> None:
        store = memory_store(self.pipeline)
        store.driver += 1
        self._driver = store.driver

    def committed(self) -> Watermarks | None:
        return memory_store(self.pipeline).watermarks

    def writer(self) -> MemoryWriter:
        return MemoryWriter()

    def commit(self, receipts: Sequence[Receipt], watermarks: Watermarks) -> None:
        store = self._own_store()
        # Receipts come from our own writer, in this very process tree.
        found = [change for receipt in receipts for change in pickle.loads(receipt)]  # noqa: S301
        store.changes += found
        # It keeps no tables that fail alone: those that are behind are none of its business.
        store.watermarks = Watermarks(watermarks.frontier, source=watermarks.source)

    def schema_receipts(self, change: SchemaChange) -> Sequence[Receipt]:
        names = tuple((t.schema, t.name) for c in change.tables if (t := c.after or c.before))
        return [pickle.dumps([MemoryChange(change.position, "schema", names)])]

    def truncate_table(self, table: TableDefinition) -> None:
        """It holds changes, not rows: history stays."""
        store = self._own_store()
        name = (table.schema, table.name)
        store.chunks = {chunk for chunk in store.chunks if chunk[0] != name}

    def chunk_writer(self, table: TableDefinition, *, again: bool = False) -> MemoryChunkWriter:
        return MemoryChunkWriter()

    def commit_chunks(self, receipts: Sequence[ChunkReceipt]) -> None:
        store = self._own_store()
        for receipt in receipts:
            chunk, found = pickle.loads(receipt.content)  # noqa: S301 (as in commit)
            if chunk not in store.chunks:
                store.chunks.add(chunk)
                store.copied += found

    def forget(self) -> Sequence[str]:
        store = memory_store(self.pipeline)
        held, store.watermarks = store.watermarks, None
        return [] if held is None else ["its position"]

    def _own_store(self) -> MemoryDeliveries:
        store = memory_store(self.pipeline)
        if store.driver != self._driver:
            raise Fenced(
                f"destination memory: driver {store.driver} of pipeline {self.pipeline} has taken "
                f"over from driver {self._driver}",
                remedy="stop this one; the other goes on where it stood",
            )
        return store


def _copied(rows: TableRows) -> Iterator[MemoryChange]:
    values: list[Row] = [{} for _ in range(len(rows))]
    for column, texts in zip(rows.table.columns, rows.columns, strict=True):
        for row, text in zip(values, texts.to_pylist(), strict=True):
            row[column.name] = text
    from penstock.decode.row_values import READ_ORDINAL

    position = Position(rows.snapshot.commit_lsn, READ_ORDINAL)
    for row in values:
        yield MemoryChange(position, "read", (_name(rows.table),), row)


def _changes(part: ChangeSet) -> Iterator[MemoryChange]:
    for table in part.tables:
        yield from _rows(table)
    for truncate in part.truncates:
        names = tuple(map(_name, truncate.tables))
        yield MemoryChange(truncate.stamp.position, "truncate", names)
    for message in part.messages:
        yield MemoryChange(
            message.stamp.position,
            "message",
            (),
            prefix=message.prefix,
            content=message.content,
        )


def _rows(changes: TableChanges) -> Iterator[MemoryChange]:
    new: dict[int, Row] = {row: {} for row in changes.new_rows.tolist()}
    old: dict[int, Row] = {row: {} for row in changes.old_rows.tolist()}
    full = changes.old_is_full.tolist()
    for number, column in enumerate(changes.table.columns):
        sent = (~changes.new_unset(number)).tolist()
        for row, value, there in zip(new, changes.new_text(number).to_pylist(), sent, strict=True):
            if there:
                new[row][column.name] = value
        sent = (~changes.old_unset(number)).tolist()
        texts = changes.old_text(number).to_pylist()
        for row, value, there, is_full in zip(old, texts, sent, full, strict=True):
            if there and (is_full or column.is_key):
                old[row][column.name] = value
    for row, values in new.items():
        # Unset means unchanged: an old image that has the column says what it is.
        new[row] = {**old.get(row, {}), **values}
    stamps = zip(
        changes.commit_lsn.tolist(), changes.ordinal.tolist(), changes.op.tolist(), strict=True
    )
    for row, (commit_lsn, ordinal, op) in enumerate(stamps):
        yield MemoryChange(
            Position(commit_lsn, ordinal),
            _OPS[op],
            (_name(changes.table),),
            new.get(row),
            old.get(row),
        )


def _name(table: TableSchema) -> TableName:
    return table.schema, table.name
