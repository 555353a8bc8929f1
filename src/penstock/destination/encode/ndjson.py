"""Changes as NDJSON, one a line. docs/change_json.md is the format's written form."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.changes import ChangeSet, MessageEvent, Stamp, TableChanges, TruncateEvent
from penstock.decode.row_values import READ_ORDINAL, Ints, Mask, RowValues
from penstock.destination.encode.commit_time import commit_time_text
from penstock.destination.encode.json_values import TEXT, join, json_values, listed, repeat, spread
from penstock.model.lsn import format_lsn
from penstock.model.table_rows import TableRows
from penstock.model.table_schema import TableSchema
from penstock.pgoutput import tuples
from penstock.transform.identity import identity_columns

FORMAT_VERSION = 1
"""Rises with every change that a reader of the version before would not understand."""

_OPS = {tuples.INSERT: "insert", tuples.UPDATE: "update", tuples.DELETE: "delete"}
_HEX = np.frombuffer(b"0123456789ABCDEF", np.uint8)
_NIBBLES = np.arange(28, -4, -4)
# Up to so many rows, row by row costs less than a dozen calls for all of them.
_FEW = 16


@dataclass(frozen=True)
class Lines:
    """Changes as lines that end in a newline, and where each stands."""

    commit_lsn: Ints
    ordinal: Ints
    text: pa.Array

    def __len__(self) -> int:
        return len(self.text)

    def take(self, rows: Ints) -> Lines:
        return Lines(self.commit_lsn[rows], self.ordinal[rows], self.text.take(pa.array(rows)))


def encode_changes(changes: ChangeSet) -> Lines:
    """All changes in commit order."""
    parts = [table_lines(table) for table in changes.tables]
    parts += [truncate_line(event) for event in changes.truncates]
    parts += [message_line(event) for event in changes.messages]
    return in_order(parts)


def in_order(parts: Sequence[Lines]) -> Lines:
    """Several sets of lines as one, by position."""
    if len(parts) == 1:
        return parts[0]
    if not parts:
        return Lines(np.zeros(0, np.int64), np.zeros(0, np.int64), pa.array([], TEXT))
    together = Lines(
        np.concatenate([part.commit_lsn for part in parts]),
        np.concatenate([part.ordinal for part in parts]),
        pa.concat_arrays([part.text for part in parts]),
    )
    return together.take(np.lexsort((together.ordinal, together.commit_lsn)))


def table_lines(changes: TableChanges) -> Lines:
    """The inserts, updates and deletes of one table, a line each."""
    parts = RowParts.of(changes, identity_columns(changes.table))
    return Lines(changes.commit_lsn, changes.ordinal, parts.objects("\n"))


@dataclass(frozen=True)
class RowParts:
    """The pieces that the objects of some changes of one table are made of, a column each."""

    head: pa.Array
    stamp: pa.Array
    key: pa.Array
    """Null for a table whose rows nothing identifies."""
    old: pa.Array
    new: pa.Array
    unset: pa.Array
    more: str = ""
    """Members that a format has beyond these."""

    @classmethod
    def of(cls, changes: TableChanges, identity: Sequence[int], more: str = "") -> RowParts:
        """``identity`` are the columns of the key."""
        table, count = changes.table, len(changes)
        values = RowValues(changes)
        unset = [values.unset(column) for column in range(len(table.columns))]
        members = [
            _members(table, column, values.text(column), unset[column])
            for column in range(len(table.columns))
        ]
        new = _objects(members, count)
        if values.is_delete.any():
            new = pc.if_else(pa.array(values.is_delete), pa.scalar("null", TEXT), new)
        return cls(
            _heads(table, changes.op),
            _stamps(changes),
            _keys(members, identity, count),
            old_objects(changes, values),
            new,
            _unset_names(table, unset, count),
            more,
        )

    def objects(self, end: str = "") -> pa.Array:
        """The whole objects, each with ``end`` behind it."""
        return join(
            self.head,
            self.stamp,
            '"key":',
            pc.fill_null(self.key, pa.scalar("null", TEXT)),
            ',"old":',
            self.old,
            ',"new":',
            self.new,
            ',"unset":',
            self.unset,
            f"{self.more}}}{end}",
        )


def read_lines(rows: TableRows) -> Lines:
    """Copied rows: op ``read``, at the position of their snapshot."""
    _, text = read_objects(rows, identity_columns(rows.table), "\n")
    count = len(rows)
    return Lines(np.full(count, rows.snapshot.commit_lsn), np.full(count, READ_ORDINAL), text)


def read_objects(
    rows: TableRows, identity: Sequence[int], end: str = "", more: str = ""
) -> tuple[pa.Array, pa.Array]:
    """The keys and the objects of copied rows."""
    table, count = rows.table, len(rows)
    members = [_members(table, column, text, None) for column, text in enumerate(rows.columns)]
    stamp = _object(
        position={
            "commit_lsn": format_lsn(rows.snapshot.commit_lsn),
            "ordinal": READ_ORDINAL,
        },
        lsn=None,
        xid=None,
        commit_time=None,
    )
    key = _keys(members, identity, count)
    text = join(
        repeat(f'{_head(table, "read")}{stamp[1:-1]},"key":', count),
        pc.fill_null(key, pa.scalar("null", TEXT)),
        ',"old":null,"new":',
        _objects(members, count),
        f',"unset":[]{more}}}{end}',
    )
    return key, text


def truncate_line(event: TruncateEvent) -> Lines:
    return _line(event.stamp, truncate_object(event))


def truncate_object(event: TruncateEvent) -> str:
    tables = [
        {"schema": table.schema, "table": table.name, "schema_version": table.fingerprint}
        for table in event.tables
    ]
    return _stamped(
        event.stamp,
        "truncate",
        tables=tables,
        cascade=event.cascade,
        restart_identity=event.restart_identity,
    )


def message_line(event: MessageEvent) -> Lines:
    return _line(event.stamp, message_object(event))


def message_object(event: MessageEvent) -> str:
    try:
        content, encoding = event.content.decode(), "utf-8"
    except UnicodeDecodeError:
        content, encoding = base64.b64encode(event.content).decode(), "base64"
    return _stamped(
        event.stamp,
        "message",
        transactional=event.transactional,
        prefix=event.prefix,
        content=content,
        encoding=encoding,
    )


def _stamped(stamp: Stamp, op: str, **members: Any) -> str:
    position = stamp.position
    return event_object(
        op=op,
        position={"commit_lsn": format_lsn(position.commit_lsn), "ordinal": position.ordinal},
        lsn=format_lsn(stamp.lsn),
        xid=stamp.xid or None,
        commit_time=commit_time_text(stamp.commit_micros),
        **members,
    )


def _line(stamp: Stamp, text: str) -> Lines:
    position = stamp.position
    return Lines(
        np.array([position.commit_lsn]), np.array([position.ordinal]), pa.array([text + "\n"], TEXT)
    )


def event_object(**members: Any) -> str:
    """One event, with the version of the format before all else."""
    return _object(format=FORMAT_VERSION, **members)


def _object(**members: Any) -> str:
    return json.dumps(members, ensure_ascii=False, separators=(",", ":"))


def _head(table: TableSchema, op: str) -> str:
    """The line up to where its stamp begins."""
    members = event_object(
        op=op, schema=table.schema, table=table.name, schema_version=table.fingerprint
    )
    return members[:-1] + ","


def _heads(table: TableSchema, op: npt.NDArray[np.uint8]) -> pa.Array:
    heads = _heads_by_op(table)
    number = np.zeros(256, np.int8)
    number[list(_OPS)] = range(len(_OPS))
    return heads.take(pa.array(number[op]))


@lru_cache(4096)
def _heads_by_op(table: TableSchema) -> pa.Array:
    return pa.array([_head(table, name) for name in _OPS.values()], TEXT)


def delete_heads(heads: pa.Array) -> pa.Array:
    """Heads of updates as those of deletes."""
    return pc.replace_substring(heads, '"op":"update"', '"op":"delete"', max_replacements=1)


def _stamps(changes: TableChanges) -> pa.Array:
    time = pa.array(changes.commit_micros).cast(pa.timestamp("us")).cast(TEXT)
    return join(
        '"position":{"commit_lsn":"',
        lsn_texts(changes.commit_lsn),
        '","ordinal":',
        pa.array(changes.ordinal).cast(TEXT),
        '},"lsn":"',
        lsn_texts(changes.lsn),
        '","xid":',
        pa.array(changes.xid).cast(TEXT),
        ',"commit_time":"',
        pc.replace_substring(time, " ", "T"),
        'Z",',
    )


def _keys(members: list[pa.Array], identity: Sequence[int], count: int) -> pa.Array:
    if not identity:
        return pa.nulls(count, TEXT)
    return _objects([members[column] for column in identity], count)


def row_keys(changes: TableChanges, values: RowValues, identity: Sequence[int]) -> pa.Array:
    """The key of the row of each change, as ``RowParts`` has it."""
    members = [_members(changes.table, c, values.text(c), values.unset(c)) for c in identity]
    return _keys(members, range(len(members)), len(changes))


def copied_keys(rows: TableRows, identity: Sequence[int]) -> pa.Array:
    """The same for copied rows."""
    members = [_members(rows.table, c, rows.columns[c], None) for c in identity]
    return _keys(members, range(len(members)), len(rows))


def old_keys(changes: TableChanges, identity: Sequence[int]) -> pa.Array:
    """The key in each old image, of those columns that it holds."""
    table = changes.table
    members = [_members(table, c, changes.old_text(c), None) for c in identity]
    return _keys(members, range(len(members)), len(changes.old_rows))


def old_objects(
    changes: TableChanges, values: RowValues, columns: Sequence[int] | None = None
) -> pa.Array:
    """The old image of each change, ``null`` where Postgres sent none; of all columns, or these."""
    images = len(changes.old_rows)
    if not images:
        return repeat("null", len(changes))
    table = changes.table
    members = [
        _members(table, column, changes.old_text(column), ~values.old_has(column))
        for column in (range(len(table.columns)) if columns is None else columns)
    ]
    objects = spread(_objects(members, images), changes.old_rows, len(changes))
    return pc.fill_null(objects, pa.scalar("null", TEXT))


def _members(table: TableSchema, column: int, text: pa.Array, absent: Mask | None) -> pa.Array:
    """``,"name":value`` for each row; empty where it is to be left out."""
    definition = table.columns[column]
    name = json.dumps(definition.name, ensure_ascii=False)
    members = join(f",{name}:", json_values(text, definition.type))
    if absent is None or not absent.any():
        return members
    return pc.if_else(pa.array(absent), pa.scalar("", TEXT), members)


def _objects(members: list[pa.Array], count: int) -> pa.Array:
    return listed(members, "{", "}") if members else repeat("{}", count)


def _unset_names(table: TableSchema, unset: Sequence[Mask | None], count: int) -> pa.Array:
    names = [
        pc.if_else(
            pa.array(mask),
            pa.scalar("," + json.dumps(column.name, ensure_ascii=False), TEXT),
            pa.scalar("", TEXT),
        )
        for column, mask in zip(table.columns, unset, strict=True)
        if mask is not None
    ]
    return listed(names, "[", "]") if names else repeat("[]", count)


def lsn_texts(lsns: Ints) -> pa.Array:
    """As Postgres shows them."""
    if len(lsns) <= _FEW:
        return pa.array([format_lsn(lsn) for lsn in lsns.tolist()], TEXT)
    return join(hex_texts(lsns >> 32), "/", hex_texts(lsns & 0xFFFFFFFF))


def hex_texts(numbers: Ints) -> pa.Array:
    """Numbers of at most 32 bits, in upper case."""
    digits = _HEX[(numbers[:, np.newaxis] >> _NIBBLES) & 15]
    offsets = np.arange(0, 8 * len(numbers) + 1, 8)
    padded = pa.Array.from_buffers(
        TEXT,
        len(numbers),
        [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(digits))],
    )
    stripped = pc.utf8_ltrim(padded, characters="0")
    return pc.if_else(pc.equal(stripped, pa.scalar("", TEXT)), pa.scalar("0", TEXT), stripped)
