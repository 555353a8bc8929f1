"""The pgoutput messages (protocol version 1), one at a time, as values.

This is the readable form, for what is rare: Relation, Type, Origin, Truncate and logical messages,
tests, and ``penstock log inspect``. Rows on the hot path go through ``tuples.py``, which reads
whole columns of many messages at once.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from penstock.model.errors import DecodeError

# Postgres counts microseconds from 2000-01-01, Arrow and Unix from 1970-01-01.
POSTGRES_EPOCH_MICROS = 946_684_800_000_000


class Unset:
    """The value of a TOASTed column that the update did not touch: not null, not sent."""

    _instance: Unset | None = None

    def __new__(cls) -> Unset:
        if cls._instance is None:
            cls._instance = super().__new__(cls)
        return cls._instance

    def __repr__(self) -> str:
        return "UNSET"


UNSET = Unset()
Value = bytes | Unset | None


@dataclass(frozen=True)
class Begin:
    commit_lsn: int
    commit_micros: int
    xid: int


@dataclass(frozen=True)
class Commit:
    commit_lsn: int
    end_lsn: int
    commit_micros: int


@dataclass(frozen=True)
class Origin:
    lsn: int
    name: str


@dataclass(frozen=True)
class RelationColumn:
    name: str
    type_oid: int
    typmod: int
    is_key: bool


@dataclass(frozen=True)
class Relation:
    oid: int
    schema: str
    name: str
    replica_identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True)
class Type:
    oid: int
    schema: str
    name: str


@dataclass(frozen=True)
class Insert:
    relation: int
    new: tuple[Value, ...]


@dataclass(frozen=True)
class Update:
    relation: int
    old: tuple[Value, ...] | None
    old_kind: Literal["key", "full"] | None
    new: tuple[Value, ...]


@dataclass(frozen=True)
class Delete:
    relation: int
    old: tuple[Value, ...]
    old_kind: Literal["key", "full"]


@dataclass(frozen=True)
class Truncate:
    relations: tuple[int, ...]
    cascade: bool
    restart_identity: bool


@dataclass(frozen=True)
class LogicalMessage:
    transactional: bool
    lsn: int
    prefix: str
    content: bytes


Message = (
    Begin | Commit | Origin | Relation | Type | Insert | Update | Delete | Truncate | LogicalMessage
)


class _Reader:
    """Reads forward over one message and never past its end."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def unpack(self, layout: str) -> tuple[int, ...]:
        size = struct.calcsize(layout)
        if self._at + size > len(self._data):
            raise DecodeError(
                f"pgoutput message ends after {len(self._data)} bytes, "
                f"in the middle of a field at byte {self._at}"
            )
        values = struct.unpack_from(layout, self._data, self._at)
        self._at += size
        return values

    def byte(self) -> int:
        return self.unpack(">B")[0]

    def raw(self, size: int) -> bytes:
        if size < 0 or self._at + size > len(self._data):
            raise DecodeError(
                f"pgoutput message names {size} bytes at byte {self._at}, "
                f"but only {len(self._data) - self._at} are left"
            )
        piece = self._data[self._at : self._at + size]
        self._at += size
        return piece

    def text(self) -> str:
        end = self._data.find(b"\0", self._at)
        if end < 0:
            raise DecodeError(f"pgoutput message has an unterminated name at byte {self._at}")
        piece = self._data[self._at : end]
        self._at = end + 1
        try:
            return piece.decode()
        except UnicodeDecodeError as error:
            raise DecodeError(f"pgoutput message has a name that is not UTF-8: {error}") from None

    def tuple(self) -> tuple[Value, ...]:
        (count,) = self.unpack(">H")
        values: list[Value] = []
        for _ in range(count):
            kind = self.byte()
            if kind == ord("n"):
                values.append(None)
            elif kind == ord("u"):
                values.append(UNSET)
            elif kind in b"tb":
                values.append(self.raw(self.unpack(">i")[0]))
            else:
                raise DecodeError(f"unknown column kind {bytes([kind])!r} in a pgoutput tuple")
        return tuple(values)

    def finish(self, kind: str) -> None:
        if self._at != len(self._data):
            raise DecodeError(
                f"pgoutput {kind} message has {len(self._data) - self._at} bytes too many"
            )


def parse_message(data: bytes) -> Message:
    """The message in ``data``; DecodeError where it is not exactly one well-formed message."""
    reader = _Reader(data)
    kind = chr(reader.byte())
    parse = _PARSERS.get(kind)
    if parse is None:
        raise DecodeError(f"unknown pgoutput message {kind!r}")
    message = parse(reader)
    reader.finish(type(message).__name__)
    return message


def _begin(reader: _Reader) -> Begin:
    commit_lsn, micros, xid = reader.unpack(">QqI")
    return Begin(commit_lsn, micros + POSTGRES_EPOCH_MICROS, xid)


def _commit(reader: _Reader) -> Commit:
    _flags, commit_lsn, end_lsn, micros = reader.unpack(">BQQq")
    return Commit(commit_lsn, end_lsn, micros + POSTGRES_EPOCH_MICROS)


def _origin(reader: _Reader) -> Origin:
    (lsn,) = reader.unpack(">Q")
    return Origin(lsn, reader.text())


def _relation(reader: _Reader) -> Relation:
    (oid,) = reader.unpack(">I")
    # An empty namespace stands for pg_catalog.
    schema = reader.text() or "pg_catalog"
    name = reader.text()
    identity = chr(reader.byte())
    if identity not in "dnfi":
        raise DecodeError(f"unknown replica identity {identity!r} of {schema}.{name}")
    (count,) = reader.unpack(">H")
    columns = []
    for _ in range(count):
        flags = reader.byte()
        column_name = reader.text()
        type_oid, typmod = reader.unpack(">Ii")
        columns.append(RelationColumn(column_name, type_oid, typmod, bool(flags & 1)))
    return Relation(oid, schema, name, identity, tuple(columns))


def _type(reader: _Reader) -> Type:
    (oid,) = reader.unpack(">I")
    schema = reader.text() or "pg_catalog"
    return Type(oid, schema, reader.text())


def _insert(reader: _Reader) -> Insert:
    (relation,) = reader.unpack(">I")
    _expect(reader.byte(), "N", "Insert")
    return Insert(relation, reader.tuple())


def _update(reader: _Reader) -> Update:
    (relation,) = reader.unpack(">I")
    marker = chr(reader.byte())
    old: tuple[Value, ...] | None = None
    old_kind: Literal["key", "full"] | None = None
    if marker in "KO":
        old, old_kind = reader.tuple(), "key" if marker == "K" else "full"
        marker = chr(reader.byte())
    _expect(ord(marker), "N", "Update")
    return Update(relation, old, old_kind, reader.tuple())


def _delete(reader: _Reader) -> Delete:
    (relation,) = reader.unpack(">I")
    marker = chr(reader.byte())
    if marker not in "KO":
        raise DecodeError(f"Delete message has {marker!r} where K or O was expected")
    return Delete(relation, reader.tuple(), "key" if marker == "K" else "full")


def _truncate(reader: _Reader) -> Truncate:
    count, flags = reader.unpack(">IB")
    relations = tuple(reader.unpack(">I")[0] for _ in range(count))
    return Truncate(relations, bool(flags & 1), bool(flags & 2))


def _logical_message(reader: _Reader) -> LogicalMessage:
    flags, lsn = reader.unpack(">BQ")
    prefix = reader.text()
    (size,) = reader.unpack(">I")
    return LogicalMessage(bool(flags & 1), lsn, prefix, reader.raw(size))


def _expect(found: int, wanted: str, kind: str) -> None:
    if chr(found) != wanted:
        raise DecodeError(f"{kind} message has {chr(found)!r} where {wanted!r} was expected")


_PARSERS: dict[str, Callable[[_Reader], Message]] = {
    "B": _begin,
    "C": _commit,
    "O": _origin,
    "R": _relation,
    "Y": _type,
    "I": _insert,
    "U": _update,
    "D": _delete,
    "T": _truncate,
    "M": _logical_message,
}
