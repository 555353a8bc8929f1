"""What an event format makes of changes, for destinations that send messages: queues, webhooks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from penstock.decode.changes import MessageEvent, TableChanges, TruncateEvent
from penstock.decode.row_values import Ints
from penstock.destination.contract import SchemaChange
from penstock.destination.encode.json_values import TEXT
from penstock.model.schema_change import TableChange
from penstock.model.table_rows import TableRows


@dataclass(frozen=True)
class Messages:
    """Messages in the order of the changes that they come from, one entry a message in each column.

    A change makes one message or several: ``part`` counts those of the same change from 0.
    """

    row: Ints
    """Which change, or copied row, of those that were given."""
    part: Ints
    op: pa.Array
    """Large strings: insert, update, delete, tombstone, read, truncate, message, schema."""
    key: pa.Array
    """Large strings; null where the row has no identity."""
    value: pa.Array
    """Large strings; null is a tombstone: the key is gone."""
    headers: Sequence[tuple[str, pa.Array]] = field(default=())
    """The format's own headers, by name; null where a message does not have one."""

    def __len__(self) -> int:
        return len(self.row)

    @classmethod
    def single(cls, op: str, key: pa.Array, value: pa.Array) -> Messages:
        """The only message of something that happened once."""
        zero = np.zeros(1, np.int64)
        return cls(zero, zero, pa.array([op], TEXT), key, value)


class EventFormat(ABC):
    """One way to write changes as messages. Picklable: it works on executors."""

    @abstractmethod
    def changes(self, changes: TableChanges) -> Messages:
        """Inserts, updates and deletes of one table."""

    @abstractmethod
    def copied(self, rows: TableRows) -> Messages:
        """Rows that were copied, not streamed."""

    @abstractmethod
    def truncate(self, event: TruncateEvent) -> Sequence[Messages]:
        """A TRUNCATE: what to send for each of its tables, in their order."""

    @abstractmethod
    def message(self, event: MessageEvent) -> Messages:
        """What pg_logical_emit_message sent."""

    @abstractmethod
    def schema_change(self, change: SchemaChange) -> Sequence[tuple[TableChange, Messages]]:
        """A schema change: what to send for each of its tables, in their order. May be nothing."""


def in_order(blocks: Sequence[Messages]) -> Messages:
    """Several sets of messages as one: by change, then by part."""
    row = np.concatenate([block.row for block in blocks])
    part = np.concatenate([block.part for block in blocks])
    order = np.lexsort((part, row))
    places = pa.array(order)

    def together(columns: Sequence[pa.Array]) -> pa.Array:
        return pa.concat_arrays(columns).take(places)

    names = dict.fromkeys(name for block in blocks for name, _ in block.headers)
    headers = [
        (name, together([dict(b.headers).get(name, pa.nulls(len(b), TEXT)) for b in blocks]))
        for name in names
    ]
    return Messages(
        row[order],
        part[order],
        together([block.op for block in blocks]),
        together([block.key for block in blocks]),
        together([block.value for block in blocks]),
        headers,
    )
