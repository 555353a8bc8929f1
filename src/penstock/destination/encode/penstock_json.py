"""Changes as messages in Penstock's own JSON: docs/change_json.md."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.changes import MessageEvent, TableChanges, TruncateEvent
from penstock.decode.flat_rows import op_names
from penstock.decode.row_values import Ints, RowValues
from penstock.destination.contract import SchemaChange
from penstock.destination.encode.json_values import TEXT, repeat
from penstock.destination.encode.messages import EventFormat, Messages, in_order
from penstock.destination.encode.ndjson import (
    RowParts,
    delete_heads,
    message_object,
    old_keys,
    read_objects,
    truncate_object,
)
from penstock.destination.encode.schema_event import schema_events
from penstock.model.schema_change import TableChange
from penstock.model.table_rows import TableRows
from penstock.model.table_schema import TableSchema
from penstock.pgoutput import tuples
from penstock.transform.identity import identity_columns


@dataclass(frozen=True)
class PenstockFormat(EventFormat):
    """``keys`` names the columns that identify the rows of a table, by its oid. ``ids`` has the
    numbers of its columns by their names, of tables whose events are to tell them.

    An update that changes the key makes two messages: under the old key, that the row is gone from
    there, and under the new one the update itself. Who reads one key alone misses nothing.
    """

    keys: Mapping[int, tuple[str, ...]]
    ids: Mapping[int, Mapping[str, int]] = field(default_factory=dict)

    def changes(self, changes: TableChanges) -> Messages:
        identity = self._identity(changes.table)
        parts = RowParts.of(changes, identity, self._ids(changes.table))
        moved, old_key = _moved(changes, identity, parts.key)
        part = np.zeros(len(changes), np.int64)
        part[moved] = 1
        messages = Messages(
            np.arange(len(changes)),
            part,
            op_names(changes.op).cast(TEXT),
            parts.key,
            parts.objects(),
        )
        if not len(moved):
            return messages
        return in_order([messages, _departures(parts, moved, old_key)])

    def copied(self, rows: TableRows) -> Messages:
        identity = self._identity(rows.table)
        key, value = read_objects(rows, identity, more=self._ids(rows.table))
        count = len(rows)
        return Messages(
            np.arange(count), np.zeros(count, np.int64), repeat("read", count), key, value
        )

    def truncate(self, event: TruncateEvent) -> Sequence[Messages]:
        return [
            _single("truncate", truncate_object(replace(event, tables=(table,))))
            for table in event.tables
        ]

    def message(self, event: MessageEvent) -> Messages:
        return _single("message", message_object(event))

    def schema_change(self, change: SchemaChange) -> Sequence[tuple[TableChange, Messages]]:
        return [
            (table, _single("schema", line.decode().rstrip("\n")))
            for table, line in schema_events(change)
        ]

    def _identity(self, table: TableSchema) -> tuple[int, ...]:
        return identity_columns(table, self.keys.get(table.oid))

    def _ids(self, table: TableSchema) -> str:
        """``,"table_id":…,"columns":{…}``, or nothing. A column that the catalogue's word does not
        cover has no number: a wrong one would be worse.
        """
        if table.oid not in self.ids:
            return ""
        known = self.ids[table.oid]
        columns = {c.name: known[c.name] for c in table.columns if c.name in known}
        text = json.dumps(columns, ensure_ascii=False, separators=(",", ":"))
        return f',"table_id":{table.oid},"columns":{text}'


def _single(op: str, value: str) -> Messages:
    return Messages.single(op, pa.nulls(1, TEXT), pa.array([value], TEXT))


def _moved(changes: TableChanges, identity: Sequence[int], key: pa.Array) -> tuple[Ints, pa.Array]:
    """The updates that changed the row's key, and what that was."""
    rows = changes.old_rows
    told = changes.op[rows] == tuples.UPDATE
    values = RowValues(changes)
    for column in identity:
        told &= values.old_has(column)
    if not identity or not told.any():
        return np.zeros(0, np.int64), pa.nulls(0, TEXT)
    old = old_keys(changes, identity)
    differs = np.asarray(pc.not_equal(old, key.take(pa.array(rows)))) & told
    return rows[differs], old.filter(pa.array(differs))


def _departures(parts: RowParts, moved: Ints, old_key: pa.Array) -> Messages:
    """A delete for each update that changed its row's key."""
    some, count = pa.array(moved), len(moved)
    values = RowParts(
        delete_heads(parts.head.take(some)),
        parts.stamp.take(some),
        old_key,
        old_key,
        repeat("null", count),
        repeat("[]", count),
        parts.more,
    ).objects()
    return Messages(moved, np.zeros(count, np.int64), repeat("delete", count), old_key, values)
