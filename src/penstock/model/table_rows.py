"""Rows of one table that were copied, and what reads a piece of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.model.lsn import Frontier
from penstock.model.table_schema import TableSchema

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class TableRows:
    """Rows of one table that were copied, not streamed: one text column a table column."""

    table: TableSchema
    columns: tuple[pa.Array, ...]
    count: int
    """How many rows: a table without columns has rows, too."""
    snapshot: Frontier
    """The point at which they were read. Later changes of the same rows stand after it."""

    def __len__(self) -> int:
        return self.count


class ChunkReader(ABC):
    """One chunk of a table that is copied, on the executor that copies it. Read it once, in the
    form that suits the destination.

    Raises SnapshotGone or TableRewritten where it cannot be read any more.
    """

    table: TableSchema
    """The columns that come, in their order."""
    chunk: str
    """Its name: the same for the same rows of the same copy, whoever reads them."""
    snapshot: Frontier
    """The point at which it is read."""
    has_binary: bool = True
    """Whether ``raw`` has a binary form."""

    @abstractmethod
    def raw(self, *, binary: bool) -> Iterator[bytes]:
        """What COPY TO STDOUT gives, in pieces of whole rows; binary with header and trailer."""

    @abstractmethod
    def texts(self) -> Iterator[TableRows]:
        """Postgres's own texts, some thousand rows at a time."""

    @abstractmethod
    def typed(self) -> Iterator[pa.RecordBatch]:
        """The same in Arrow types, as the stream's typed rows have them: the columns of
        ``decode.flat_columns.flat_table``, then ``_raw``, texts of values that they cannot hold.
        """
