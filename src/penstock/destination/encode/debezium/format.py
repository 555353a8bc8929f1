"""Debezium's messages. docs/debezium_format.md says where they differ from Debezium's own."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.decode.changes import MessageEvent, TableChanges, TruncateEvent
from penstock.decode.row_values import Ints, Mask, RowValues
from penstock.destination.contract import SchemaChange
from penstock.destination.encode.debezium.images import (
    NewImages,
    OldImages,
    row_keys,
    row_object,
)
from penstock.destination.encode.debezium.options import DebeziumOptions
from penstock.destination.encode.debezium.schema import message_schemas
from penstock.destination.encode.debezium.source import Place
from penstock.destination.encode.debezium.table import TableForm, table_form, with_schema
from penstock.destination.encode.json_values import TEXT, Part, joined, repeat, spread
from penstock.destination.encode.messages import EventFormat, Messages, in_order
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import TableRows
from penstock.model.table_schema import TableSchema
from penstock.pgoutput import tuples

NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"
UNSET = "penstock.unset"
"""The header that names the columns that an update did not send, as a JSON array."""

_UPSERTS = pa.array(["insert", "update"], TEXT)
_LETTERS = pa.array(["c", "u"], TEXT)


class DebeziumFormat(EventFormat):
    """``definitions`` and ``keys`` are by oid; ``keys`` names the columns that identify rows.

    A table that is not among them has as its key what the stream calls its identity.
    """

    def __init__(
        self,
        options: DebeziumOptions,
        definitions: Mapping[int, TableDefinition],
        keys: Mapping[int, tuple[str, ...]],
    ) -> None:
        self._options = options
        self._definitions = dict(definitions)
        self._keys = dict(keys)
        self._forms: dict[TableSchema, TableForm] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_forms": {}}

    def changes(self, changes: TableChanges) -> Messages:
        form, values = self._form(changes.table), RowValues(changes)
        new, old = NewImages(form, changes, values), OldImages(form, changes, values)
        moved = old.moved()
        gone = (changes.op[changes.old_rows] == tuples.DELETE) | moved
        blocks = []
        if new.count or not gone.any():
            blocks.append(self._upserts(changes, form, new, old, moved))
        if gone.any():
            removals = self._removals(changes, form, new, old, gone, moved)
            blocks.append(removals)
            if self._options.tombstones:
                blocks.append(_tombstones(removals))
        return blocks[0] if len(blocks) == 1 else in_order(blocks)

    def copied(self, rows: TableRows) -> Messages:
        form, count = self._form(rows.table), len(rows)
        columns = [
            column.write(text) for column, text in zip(form.columns, rows.columns, strict=True)
        ]
        place = Place.of_copy(rows.snapshot.commit_lsn, time.time_ns() // 1000)
        after = row_object(form, columns, range(len(columns)))
        return Messages(
            np.arange(count),
            np.zeros(count, np.int64),
            repeat("read", count),
            row_keys(form, columns, count),
            self._values(rows.table, form, ["null"], after, place, "r", count),
        )

    def truncate(self, event: TruncateEvent) -> Sequence[Messages]:
        place = Place.of_event(event.stamp)
        return [
            Messages.single(
                "truncate",
                pa.nulls(1, TEXT),
                self._values(table, self._form(table), ["null"], ["null"], place, "t", 1),
            )
            for table in event.tables
        ]

    def message(self, event: MessageEvent) -> Messages:
        place = Place.of_event(event.stamp)
        key_head = value_head = tail = ""
        if self._options.schemas:
            key_head, value_head = map(with_schema, message_schemas())
            tail = "}"
        prefix = json.dumps(event.prefix, ensure_ascii=False)
        content = base64.b64encode(event.content).decode()
        value: list[Part] = [
            f'{value_head}{{"op":"m","ts_ms":',
            place.millis,
            ",",
            *place.source(self._options, "", ""),
            *place.transaction(self._options),
            f',"message":{{"prefix":{prefix},"content":"{content}"}}}}{tail}',
        ]
        key = f'{key_head}{{"prefix":{prefix}}}{tail}'
        return Messages.single("message", pa.array([key], TEXT), joined(value, 1))

    def schema_change(self, change: SchemaChange) -> Sequence[tuple[TableChange, Messages]]:
        """Debezium's Postgres connector sends nothing of its own for these."""
        return ()

    def _form(self, table: TableSchema) -> TableForm:
        if table not in self._forms:
            self._forms[table] = table_form(
                table, self._options, self._definitions.get(table.oid), self._keys.get(table.oid)
            )
        return self._forms[table]

    def _upserts(
        self,
        changes: TableChanges,
        form: TableForm,
        new: NewImages,
        old: OldImages,
        moved: Mask,
    ) -> Messages:
        """Rows that are there after the change; of one with a new key, its creation."""
        rows = changes.new_rows
        is_update = changes.op[rows] == tuples.UPDATE
        part = np.zeros(len(rows), np.int64)
        headers = []
        if moved.any():
            at = np.searchsorted(rows, changes.old_rows[moved])
            is_update[at] = False
            part[at] = 2 if self._options.tombstones else 1
            old_keys = old.keys.filter(pa.array(moved))
            headers.append((OLD_KEY, spread(old_keys, at, len(rows))))
        if (unset := new.unset_names()) is not None:
            headers.append((UNSET, unset))
        before: Part = "null"
        stayed = np.flatnonzero((changes.op[changes.old_rows] == tuples.UPDATE) & ~moved)
        if len(stayed):
            at = np.searchsorted(rows, changes.old_rows[stayed])
            kept = spread(old.rows.take(pa.array(stayed)), at, len(rows))
            before = kept.fill_null("null")
        place = Place.of_changes(changes, rows if len(rows) < len(changes) else slice(None))
        number = pa.array(is_update.astype(np.int8))
        letter = (
            _LETTERS.take(number)
            if is_update.any() and not is_update.all()
            else ("u" if is_update.any() else "c")
        )
        value = self._values(changes.table, form, [before], new.rows(), place, letter, len(rows))
        return Messages(rows, part, _UPSERTS.take(number), new.keys, value, headers)

    def _removals(
        self,
        changes: TableChanges,
        form: TableForm,
        new: NewImages,
        old: OldImages,
        gone: Mask,
        moved: Mask,
    ) -> Messages:
        """Rows that are there no longer, or no longer under their key."""
        rows: Ints = changes.old_rows[gone]
        before, keys = old.rows, old.keys
        if not gone.all():
            before, keys = before.filter(pa.array(gone)), keys.filter(pa.array(gone))
        headers = []
        if moved.any():
            found = changes.old_rows[moved]
            new_keys = new.keys.take(pa.array(np.searchsorted(changes.new_rows, found)))
            at = np.searchsorted(rows, found)
            headers.append((NEW_KEY, spread(new_keys, at, len(rows))))
        place = Place.of_changes(changes, rows)
        value = self._values(changes.table, form, [before], ["null"], place, "d", len(rows))
        part = np.zeros(len(rows), np.int64)
        return Messages(rows, part, repeat("delete", len(rows)), keys, value, headers)

    def _values(
        self,
        table: TableSchema,
        form: TableForm,
        before: Sequence[Part],
        after: Sequence[Part],
        place: Place,
        op: Part,
        count: int,
    ) -> pa.Array:
        parts: list[Part] = [
            form.value_head,
            '{"before":',
            *before,
            ',"after":',
            *after,
            ",",
            *place.source(self._options, table.schema, table.name),
            *place.transaction(self._options),
            ',"op":"',
            op,
            '"',
            *place.times(),
            "}",
            form.tail,
        ]
        return joined(parts, count)


def _tombstones(removals: Messages) -> Messages:
    count = len(removals)
    return Messages(
        removals.row,
        np.ones(count, np.int64),
        repeat("tombstone", count),
        removals.key,
        pa.nulls(count, TEXT),
        removals.headers,
    )
