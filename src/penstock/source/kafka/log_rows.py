"""Events as rows of the log: pgoutput messages, as if a slot had sent them."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from penstock.changelog.segment import SCHEMA, Segment, place
from penstock.model.lsn import Frontier
from penstock.model.schema_message import SCHEMA_CHANGE
from penstock.model.table_schema import TableSchema
from penstock.source.kafka.events import RowEvent, ToldTruncate, Values
from penstock.source.kafka.topic_tables import ToldTable

_NULL, _UNSET = b"n", b"u"


def insert(event: RowEvent) -> bytes:
    return struct.pack(">cIc", b"I", event.table.oid, b"N") + _new(event)


def update(event: RowEvent, old_key: Values | None) -> bytes:
    """``old_key`` where the row stood under another key before."""
    old = b"" if old_key is None else b"K" + _key(event.table, old_key)
    return struct.pack(">cI", b"U", event.table.oid) + old + b"N" + _new(event)


def delete(event: RowEvent) -> bytes:
    return struct.pack(">cIc", b"D", event.table.oid, b"K") + _key(event.table, event.key)


def truncate(event: ToldTruncate) -> bytes:
    oids = [table.oid for table in event.tables]
    return struct.pack(f">cIB{len(oids)}I", b"T", len(oids), 0, *oids)


def schema_change(tables: Sequence[ToldTable], tag: str) -> bytes:
    """What the driver follows; documents hold what a message told, and no expression."""
    body = {
        "tag": tag,
        "version": 0,
        "rewrite": False,
        "tables": [
            {"table": table.oid, "document": table.definition.to_json()} for table in tables
        ],
    }
    return b"S" + json.dumps(body).encode()


def _new(event: RowEvent) -> bytes:
    """The row by the table's columns of now. One that the message does not name was added later:
    an update keeps what is there, any other row has none.
    """
    places = event.table.places
    parts = [_UNSET if event.op == "update" else _NULL] * len(event.table.columns)
    for name in event.unset:
        if (at := places[name]) is not None:
            parts[at] = _UNSET
    for name, value in (event.new or {}).items():
        if (at := places[name]) is not None:
            parts[at] = _value(value)
    return struct.pack(">H", len(parts)) + b"".join(parts)


def _key(table: ToldTable, key: Values) -> bytes:
    parts = [struct.pack(">H", len(table.columns))]
    parts += [
        _value(key.get(column.name)) if column.name in table.primary_key else _NULL
        for column in table.columns
    ]
    return b"".join(parts)


def _value(value: bytes | None) -> bytes:
    return _NULL if value is None else struct.pack(">ci", b"t", len(value)) + value


class LogRows:
    """The rows of one segment: of one transaction, or of several, where the source has told them
    apart.
    """

    def __init__(self) -> None:
        self._payloads: list[bytes] = []
        self._relations: list[int] = []
        self._versions: list[int] = []
        self._micros: list[int] = []
        self._tables: list[TableSchema] = []
        self._placed: dict[tuple[TableSchema, ...], int] = {}
        self._ends: list[tuple[int, int]] = []
        self.size = 0
        """How many bytes their messages have."""

    def __len__(self) -> int:
        return len(self._payloads)

    def add(self, payload: bytes, tables: Sequence[ToldTable], micros: int) -> None:
        layouts = tuple(table.layout for table in tables)
        if layouts not in self._placed:
            self._placed[layouts] = place(self._tables, list(layouts))
        self._payloads.append(payload)
        self._relations.append(tables[0].oid if payload[0] in b"IUD" else 0)
        self._versions.append(self._placed[layouts])
        self._micros.append(micros)
        self.size += len(payload)

    def end_transaction(self, commit_lsn: int) -> None:
        """What was added since the last time is a transaction that commits there."""
        if len(self) > self._ended:
            self._ends.append((len(self), commit_lsn))

    @property
    def _ended(self) -> int:
        return self._ends[-1][0] if self._ends else 0

    def last_frontier(self, frontier: Frontier) -> Frontier:
        """Where the log ends with these rows, if a transaction of what has no end yet ends at
        ``frontier``.
        """
        if self._ends and self._ended == len(self):
            return Frontier(self._ends[-1][1], frontier.end_lsn)
        return frontier

    @property
    def tables(self) -> dict[int, TableSchema]:
        return {table.oid: table for table in self._tables}

    @property
    def has_schema_changes(self) -> bool:
        return any(payload[0] == SCHEMA_CHANGE for payload in self._payloads)

    def segment(self, frontier: Frontier, source: str) -> Segment:
        count = len(self._payloads)
        self.end_transaction(frontier.commit_lsn)
        lengths = np.diff([0, *(end for end, _ in self._ends)])
        commit = np.repeat(np.array([lsn for _, lsn in self._ends], np.uint64), lengths)
        firsts = np.repeat(np.cumsum(lengths) - lengths, lengths)
        xids = np.maximum((commit >> np.uint64(4)) % np.uint64(2**32), np.uint64(1))
        columns = [
            pa.array(commit),
            pa.array(commit),
            pa.array((np.arange(count) - firsts).astype(np.uint32)),
            pa.array(xids.astype(np.uint32)),
            pa.array(np.array(self._micros, np.int64)).cast(SCHEMA.field("commit_ts").type),
            pa.array(np.array([payload[0] for payload in self._payloads], np.uint8)),
            pa.array(np.array(self._relations, np.uint32)),
            pa.array(np.array(self._versions, np.int32)),
            pa.array(np.full(count, -1, np.int16)),
            pa.array(self._payloads, pa.binary()),
        ]
        rows = pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        return Segment(rows, tuple(self._tables), source=source)
