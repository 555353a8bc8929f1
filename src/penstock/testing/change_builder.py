"""Changes without a server: pgoutput messages made by hand, through the real assembler."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.decode.changes import ChangeSet, decode_changes
from penstock.model.lsn import NOTHING, Frontier
from penstock.model.pg_types import builtin_type
from penstock.pgoutput.messages import POSTGRES_EPOCH_MICROS, UNSET, Unset
from penstock.source.postgres.capture.assemble import Assembler
from penstock.source.postgres.capture.relations import RelationDescriber

Row = Sequence[str | Unset | None]

_OIDS = {kind.name: oid for oid in range(16, 7000) if (kind := builtin_type(oid)) is not None}
_FIRST_COMMIT = int(datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC).timestamp() * 1_000_000)


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    key: bool = False
    typmod: int = -1


@dataclass(frozen=True)
class Table:
    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[Column, ...]

    def relation(self) -> bytes:
        body = b"R" + struct.pack(">I", self.oid)
        body += _text(self.schema) + _text(self.name) + self.identity.encode()
        body += struct.pack(">H", len(self.columns))
        for column in self.columns:
            # Postgres flags every column under REPLICA IDENTITY FULL.
            is_key = column.key or self.identity == "f"
            body += bytes([is_key]) + _text(column.name)
            body += struct.pack(">Ii", _OIDS[column.type], column.typmod)
        return body


def table(
    name: str,
    *columns: Column,
    schema: str = "public",
    identity: str = "d",
    oid: int | None = None,
) -> Table:
    """A table; its oid comes from its name, so that the same name is the same table."""
    if oid is None:
        oid = 20_000 + zlib.crc32(f"{schema}.{name}".encode()) % 10**9
    return Table(oid, schema, name, identity, columns)


class ChangeBuilder:
    """Writes transactions; ``cut`` gives what was written since the last cut.

    Changes of the tables in ``leave_out`` are not written, as if nobody had made them.
    """

    def __init__(
        self,
        first_lsn: int = 0x1_0000_0010,
        micros: int = _FIRST_COMMIT,
        leave_out: Collection[Table] = (),
    ) -> None:
        self.frontier: Frontier = NOTHING
        self.micros = micros
        self._lsn = first_lsn
        self._xid = 700
        self._left_out = {of.oid for of in leave_out}
        self._described: dict[int, Table] = {}
        self._assembler = Assembler(NOTHING, RelationDescriber(lambda _oids: {}))

    @contextmanager
    def transaction(self) -> Iterator[ChangeBuilder]:
        """The commit LSN of Begin lies behind the changes, as it does in Postgres."""
        self._xid += 1
        self.micros += 1_000_000
        commit_lsn = self._lsn + 0x1000
        time = self.micros - POSTGRES_EPOCH_MICROS
        self._send(b"B" + struct.pack(">QqI", commit_lsn, time, self._xid))
        yield self
        self._lsn = commit_lsn
        self._send(b"C" + struct.pack(">BQQq", 0, commit_lsn, commit_lsn + 8, time))
        self._lsn = commit_lsn + 0x20

    def insert(self, into: Table, *row: str | Unset | None) -> None:
        self._change(into, b"I" + struct.pack(">I", into.oid) + b"N" + _tuple(row))

    def update(
        self, of: Table, *row: str | Unset | None, key: Row | None = None, full: Row | None = None
    ) -> None:
        """``key``: the old identity, null elsewhere; ``full``: the whole old row."""
        self._change(of, b"U" + struct.pack(">I", of.oid) + _old(key, full) + b"N" + _tuple(row))

    def delete(self, of: Table, *, key: Row | None = None, full: Row | None = None) -> None:
        self._change(of, b"D" + struct.pack(">I", of.oid) + _old(key, full))

    def truncate(self, *tables: Table, cascade: bool = False, restart: bool = False) -> None:
        named = [of for of in tables if of.oid not in self._left_out]
        for of in named:
            self._describe(of)
        body = b"T" + struct.pack(">IB", len(named), cascade | restart << 1)
        if named:
            self._send(body + b"".join(struct.pack(">I", of.oid) for of in named))

    def message(self, prefix: str, content: bytes, *, transactional: bool = True) -> None:
        """One that is not transactional stands outside of ``transaction()``."""
        body = b"M" + struct.pack(">BQ", transactional, self._lsn) + _text(prefix)
        self._send(body + struct.pack(">I", len(content)) + content)

    def cut(self) -> ChangeSet:
        cut = self._assembler.cut()
        self.frontier = cut.frontier
        return decode_changes(cut.segment.rows, cut.segment.tables, cut.segment.origins)

    def _change(self, of: Table, body: bytes) -> None:
        if of.oid not in self._left_out:
            self._describe(of)
            self._send(body)

    def _describe(self, of: Table) -> None:
        if self._described.get(of.oid) != of:
            self._described[of.oid] = of
            self._send(of.relation())

    def _send(self, body: bytes) -> None:
        self._lsn += 0x20
        header = b"w" + struct.pack(">QQq", self._lsn, self._lsn, 0)
        self._assembler.add([memoryview(header + body)])


def _text(value: str) -> bytes:
    return value.encode() + b"\0"


def _old(key: Row | None, full: Row | None) -> bytes:
    if full is not None:
        return b"O" + _tuple(full)
    return b"" if key is None else b"K" + _tuple(key)


def _tuple(row: Row) -> bytes:
    parts = [struct.pack(">H", len(row))]
    for value in row:
        if value is None:
            parts.append(b"n")
        elif isinstance(value, str):
            data = value.encode()
            parts.append(b"t" + struct.pack(">i", len(data)) + data)
        else:
            parts.append(b"u")
    return b"".join(parts)


__all__ = ["UNSET", "ChangeBuilder", "Column", "Table", "table"]
