"""What goes into one file: rows of a table in position order, encoded, with their stamps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from penstock.decode.changes import ChangeSet, MessageEvent, Stamp, TableChanges, TruncateEvent
from penstock.decode.row_values import Ints
from penstock.destination.files.layout import MESSAGES, table_folder
from penstock.model.lsn import Position
from penstock.model.table_rows import ChunkReader
from penstock.model.table_schema import TableSchema

_DAY_MICROS = 86_400_000_000


@dataclass(frozen=True)
class FileRows:
    """Encoded rows. How ``data`` looks is the format's business."""

    commit_lsn: Ints
    ordinal: Ints
    commit_micros: Ints
    data: pa.Table

    def __len__(self) -> int:
        return len(self.commit_lsn)

    @property
    def first(self) -> Position:
        return Position(int(self.commit_lsn[0]), int(self.ordinal[0]))

    @property
    def last(self) -> Position:
        return Position(int(self.commit_lsn[-1]), int(self.ordinal[-1]))

    def take(self, rows: Ints) -> FileRows:
        return FileRows(
            self.commit_lsn[rows],
            self.ordinal[rows],
            self.commit_micros[rows],
            self.data.take(pa.array(rows)),
        )

    def by_day(self) -> Iterator[FileRows]:
        """The same rows, apart by the day (UTC) of their commit."""
        days = self.commit_micros // _DAY_MICROS
        if (days == days[0]).all():
            yield self
            return
        for day in np.unique(days):
            yield self.take(np.flatnonzero(days == day))


@dataclass(frozen=True)
class FilePart:
    """Rows for one folder. ``table`` is None for messages, which belong to no table."""

    folder: str
    table: TableSchema | None
    rows: FileRows


class Encoding(Protocol):
    """How a format encodes rows. All ``data`` of one table version has one schema. Copied rows come
    piece by piece, none of them empty.
    """

    suffix: str

    def changes(self, changes: TableChanges) -> pa.Table: ...
    def truncate(self, table: TableSchema, event: TruncateEvent) -> pa.Table: ...
    def messages(self, events: Sequence[MessageEvent]) -> pa.Table: ...
    def copied(self, rows: ChunkReader) -> Iterator[pa.Table]: ...


def parts(changes: ChangeSet, encoding: Encoding) -> Iterator[FilePart]:
    """The changes by folder. A TRUNCATE stands among the rows of each table that it names."""
    truncates: dict[TableSchema, list[FileRows]] = {}
    for event in changes.truncates:
        for table in event.tables:
            data = encoding.truncate(table, event)
            truncates.setdefault(table, []).append(_stamped([event.stamp], data))
    for group in changes.tables:
        data = encoding.changes(group)
        rows = FileRows(group.commit_lsn, group.ordinal, group.commit_micros, data)
        yield _table_part(group.table, [rows, *truncates.pop(group.table, [])])
    for table, rows_of_table in truncates.items():
        yield _table_part(table, rows_of_table)
    if changes.messages:
        stamps = [message.stamp for message in changes.messages]
        yield FilePart(MESSAGES, None, _stamped(stamps, encoding.messages(changes.messages)))


def _table_part(table: TableSchema, pieces: list[FileRows]) -> FilePart:
    return FilePart(table_folder(table.schema, table.name), table, _in_order(pieces))


def _stamped(stamps: Sequence[Stamp], data: pa.Table) -> FileRows:
    return FileRows(
        np.array([stamp.position.commit_lsn for stamp in stamps]),
        np.array([stamp.position.ordinal for stamp in stamps]),
        np.array([stamp.commit_micros for stamp in stamps]),
        data,
    )


def _in_order(pieces: list[FileRows]) -> FileRows:
    if len(pieces) == 1:
        return pieces[0]
    together = FileRows(
        np.concatenate([piece.commit_lsn for piece in pieces]),
        np.concatenate([piece.ordinal for piece in pieces]),
        np.concatenate([piece.commit_micros for piece in pieces]),
        pa.concat_tables([piece.data for piece in pieces]),
    )
    return together.take(np.lexsort((together.ordinal, together.commit_lsn)))
