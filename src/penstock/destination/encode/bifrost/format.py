"""pg-bifrost's messages. docs/bifrost_format.md says where they differ from its own."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.changes import MessageEvent, Stamp, TableChanges, TruncateEvent
from penstock.decode.row_values import Ints, Mask, RowValues
from penstock.destination.contract import SchemaChange
from penstock.destination.encode.bifrost.columns import BifrostColumn, bifrost_columns
from penstock.destination.encode.bifrost.options import BifrostOptions
from penstock.destination.encode.commit_time import committed_at
from penstock.destination.encode.json_values import (
    TEXT,
    Part,
    joined,
    listed,
    number_texts,
    repeat,
    spread,
)
from penstock.destination.encode.messages import EventFormat, Messages, in_order
from penstock.destination.encode.ndjson import copied_keys, lsn_texts, row_keys
from penstock.destination.encode.sql_names import qualified_name
from penstock.model.lsn import format_lsn
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import TableRows
from penstock.model.table_schema import TableSchema
from penstock.pgoutput import tuples
from penstock.transform.identity import identity_columns

_NAMES = pa.array(["insert", "update"], TEXT)
_OPERATIONS = pa.array(["INSERT", "UPDATE"], TEXT)


class BifrostFormat(EventFormat):
    """``definitions`` and ``keys`` are by oid; ``keys`` names the columns that identify rows."""

    def __init__(
        self,
        options: BifrostOptions,
        definitions: Mapping[int, TableDefinition],
        keys: Mapping[int, tuple[str, ...]],
    ) -> None:
        self._options = options
        self._definitions = dict(definitions)
        self._keys = dict(keys)
        self._columns: dict[TableSchema, tuple[BifrostColumn, ...]] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_columns": {}}

    def changes(self, changes: TableChanges) -> Messages:
        values = RowValues(changes)
        keys = row_keys(changes, values, self._identity(changes.table))
        if not values.is_delete.any():
            return self._upserts(changes, values, keys)
        blocks = [self._deletes(changes, values, keys)]
        if len(changes.new_rows):
            blocks.append(self._upserts(changes, values, keys))
        return blocks[0] if len(blocks) == 1 else in_order(blocks)

    def copied(self, rows: TableRows) -> Messages:
        """A row that was there is an INSERT to who reads pg-bifrost's messages."""
        count = len(rows)
        stamp = _stamp(format_lsn(rows.snapshot.commit_lsn), 0, time.time_ns() // 1000)
        parts = [*_head(stamp, rows.table, "INSERT")]
        for number, column in enumerate(self._table(rows.table)):
            parts += [_new(column, number), *column.value(rows.columns[column.place]), "}"]
        return Messages(
            np.arange(count),
            np.zeros(count, np.int64),
            repeat("read", count),
            copied_keys(rows, self._identity(rows.table)),
            joined([*parts, "}}"], count),
        )

    def truncate(self, event: TruncateEvent) -> Sequence[Messages]:
        stamp = _stamp_of(event.stamp)
        return [
            _single("truncate", [*_head(stamp, table, "TRUNCATE"), "}}"]) for table in event.tables
        ]

    def message(self, event: MessageEvent) -> Messages:
        """pg-bifrost stops at these: the least that says all of them."""
        try:
            kind, content = "text", event.content.decode()
        except UnicodeDecodeError:
            kind, content = "bytea", "\\x" + event.content.hex()
        columns = {
            name: {"new": {"q": "true", "t": kind, "v": value}}
            for name, kind, value in (("content", kind, content), ("prefix", "text", event.prefix))
        }
        text = json.dumps(columns, ensure_ascii=False, separators=(",", ":"))
        head = ',"table":"","operation":"MESSAGE","columns":'
        return _single("message", [*_stamp_of(event.stamp), head, text, "}"])

    def schema_change(self, change: SchemaChange) -> Sequence[tuple[TableChange, Messages]]:
        """pg-bifrost sends nothing for these."""
        return ()

    def _identity(self, table: TableSchema) -> tuple[int, ...]:
        return identity_columns(table, self._keys.get(table.oid))

    def _table(self, table: TableSchema) -> tuple[BifrostColumn, ...]:
        if table not in self._columns:
            definition = self._definitions.get(table.oid)
            self._columns[table] = bifrost_columns(table, definition)
        return self._columns[table]

    def _upserts(self, changes: TableChanges, values: RowValues, keys: pa.Array) -> Messages:
        rows = changes.new_rows
        is_update = changes.op[rows] == tuples.UPDATE
        number = pa.array(is_update.astype(np.int8))
        operation: Part = _OPERATIONS.take(number)
        if is_update.all() or not is_update.any():
            operation = "UPDATE" if is_update.any() else "INSERT"
        parts = _head(_stamps(changes, rows), changes.table, operation)
        for place, column in enumerate(self._table(changes.table)):
            text, unset = _after(changes, values, column.place)
            parts += [_new(column, place), *column.value(text, unset)]
            if self._options.old_values and (old := _old(changes, values, column)) is not None:
                parts.append(old)
            parts.append("}")
        return Messages(
            rows,
            np.zeros(len(rows), np.int64),
            _NAMES.take(number),
            keys.take(pa.array(rows)) if len(rows) < len(changes) else keys,
            joined([*parts, "}}"], len(rows)),
        )

    def _deletes(self, changes: TableChanges, values: RowValues, keys: pa.Array) -> Messages:
        """Columns that old rows do not hold, or hold as null, are left out."""
        images = np.flatnonzero(changes.op[changes.old_rows] == tuples.DELETE)
        rows, some, count = changes.old_rows[images], pa.array(images), len(images)
        members = []
        for column in self._table(changes.table):
            has = values.old_has(column.place)[images]
            text = changes.old_text(column.place).take(some)
            has &= text.is_valid().to_numpy(zero_copy_only=False)
            if has.any():
                parts = [f',{column.name}:{{"old":', *column.value(text), "}"]
                member = joined(parts, count)
                members.append(pc.if_else(pa.array(has), member, pa.scalar("", TEXT)))
        columns = listed(members, "{", "}}") if members else "{}}"
        head = _head(_stamps(changes, rows), changes.table, "DELETE")
        head[-1] = head[-1].removesuffix("{")
        return Messages(
            rows,
            np.zeros(count, np.int64),
            repeat("delete", count),
            keys.take(pa.array(rows)),
            joined([*head, columns], count),
        )


def _after(changes: TableChanges, values: RowValues, place: int) -> tuple[pa.Array, Mask | None]:
    """A column of the rows that inserts and updates leave, and where nobody sent it."""
    if not changes.new_unset(place).any():
        return changes.new_text(place), None
    unset = values.unset(place)
    text = values.text(place).take(pa.array(changes.new_rows))
    return text, None if unset is None else unset[changes.new_rows]


def _old(changes: TableChanges, values: RowValues, column: BifrostColumn) -> pa.Array | None:
    """``,"old":{…}`` where the value was another one, or was not sent again; else empty."""
    is_told = values.old_has(column.place) & (changes.op[changes.old_rows] == tuples.UPDATE)
    images = np.flatnonzero(is_told)
    if not len(images):
        return None
    rows = np.searchsorted(changes.new_rows, changes.old_rows[images])
    old = changes.old_text(column.place).take(pa.array(images))
    new = changes.new_text(column.place).take(pa.array(rows))
    # A value that was not sent is null there, so that it differs.
    same = pc.fill_null(pc.equal(old, new), pa.scalar(False)).to_numpy(zero_copy_only=False)
    was_null = old.is_null().to_numpy(zero_copy_only=False)
    same |= was_null & new.is_null().to_numpy(zero_copy_only=False)
    shown = np.flatnonzero(~same)
    if not len(shown):
        return None
    parts = [',"old":', *column.value(old.take(pa.array(shown)))]
    found = spread(joined(parts, len(shown)), rows[shown], len(changes.new_rows))
    return pc.fill_null(found, "")


def _new(column: BifrostColumn, number: int) -> str:
    return f'{"," if number else ""}{column.name}:{{"new":'


def _head(stamp: Sequence[Part], table: TableSchema, operation: Part) -> list[Part]:
    """The object up to where its columns begin."""
    name = json.dumps(qualified_name(table.schema, table.name), ensure_ascii=False)
    return [*stamp, f',"table":{name},"operation":"', operation, '","columns":{']


def _stamps(changes: TableChanges, rows: Ints) -> list[Part]:
    micros = changes.commit_micros[rows]
    seconds = pa.array(micros // 10**6).cast(pa.timestamp("s")).cast(TEXT)
    return _stamp_parts(
        pc.replace_substring(seconds, " ", "T"),
        number_texts(micros // 1000),
        number_texts(changes.xid[rows]),
        number_texts(micros),
        lsn_texts(changes.lsn[rows]),
    )


def _stamp_of(stamp: Stamp) -> list[Part]:
    return _stamp(format_lsn(stamp.lsn), stamp.xid or 0, stamp.commit_micros)


def _stamp(lsn: str, xid: int, micros: int) -> list[Part]:
    at = committed_at(micros).replace(tzinfo=None).isoformat(timespec="seconds")
    return _stamp_parts(at, str(micros // 1000), str(xid), str(micros), lsn)


def _stamp_parts(at: Part, millis: Part, xid: Part, micros: Part, lsn: Part) -> list[Part]:
    return [
        *('{"time":"', at, 'Z","time_ms":', millis),
        *(',"txn":"', xid, "-", micros, '000","lsn":"', lsn, '"'),
    ]


def _single(op: str, parts: Sequence[Part]) -> Messages:
    return Messages.single(op, pa.nulls(1, TEXT), joined(parts, 1))
