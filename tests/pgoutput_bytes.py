"""pgoutput messages → bytes: the inverse of ``parse_message``, written apart from it."""

from __future__ import annotations

import struct

from penstock.pgoutput.messages import (
    POSTGRES_EPOCH_MICROS,
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Relation,
    Truncate,
    Type,
    Unset,
    Update,
    Value,
)


def encode(message: Message) -> bytes:
    """The bytes that a walsender sends for ``message`` (protocol version 1, text values)."""
    match message:
        case Begin():
            body = struct.pack(">QqI", message.commit_lsn, _time(message), message.xid)
            return b"B" + body
        case Commit():
            lsns = (message.commit_lsn, message.end_lsn)
            return b"C" + struct.pack(">BQQq", 0, *lsns, _time(message))
        case Origin():
            return b"O" + struct.pack(">Q", message.lsn) + _text(message.name)
        case Relation():
            return b"R" + struct.pack(">I", message.oid) + _relation(message)
        case Type():
            return (
                b"Y" + struct.pack(">I", message.oid) + _text(message.schema) + _text(message.name)
            )
        case Insert():
            return b"I" + struct.pack(">I", message.relation) + b"N" + encode_tuple(message.new)
        case Update():
            old = b"" if message.old is None else _old(message.old_kind, message.old)
            new = b"N" + encode_tuple(message.new)
            return b"U" + struct.pack(">I", message.relation) + old + new
        case Delete():
            return b"D" + struct.pack(">I", message.relation) + _old(message.old_kind, message.old)
        case Truncate():
            flags = message.cascade | message.restart_identity << 1
            count = len(message.relations)
            return b"T" + struct.pack(f">IB{count}I", count, flags, *message.relations)
        case LogicalMessage():
            head = struct.pack(">BQ", message.transactional, message.lsn) + _text(message.prefix)
            return b"M" + head + struct.pack(">I", len(message.content)) + message.content


def encode_tuple(values: tuple[Value, ...]) -> bytes:
    """TupleData: the number of columns, then each value as null, unset or text."""
    parts = [struct.pack(">H", len(values))]
    for value in values:
        if value is None:
            parts.append(b"n")
        elif isinstance(value, Unset):
            parts.append(b"u")
        else:
            parts.append(b"t" + struct.pack(">i", len(value)) + value)
    return b"".join(parts)


def xlog_data(body: bytes, lsn: int = 0, sent_micros: int = POSTGRES_EPOCH_MICROS) -> bytes:
    """``body`` as the walsender wraps it: start of the WAL record, end of WAL, time of sending."""
    return b"w" + struct.pack(">QQq", lsn, lsn, sent_micros - POSTGRES_EPOCH_MICROS) + body


def _time(message: Begin | Commit) -> int:
    return message.commit_micros - POSTGRES_EPOCH_MICROS


def _text(value: str) -> bytes:
    return value.encode() + b"\0"


def _relation(relation: Relation) -> bytes:
    parts = [_text(relation.schema), _text(relation.name), relation.replica_identity.encode()]
    parts.append(struct.pack(">H", len(relation.columns)))
    for column in relation.columns:
        parts.append(bytes([column.is_key]) + _text(column.name))
        parts.append(struct.pack(">Ii", column.type_oid, column.typmod))
    return b"".join(parts)


def _old(kind: str | None, values: tuple[Value, ...]) -> bytes:
    return (b"K" if kind == "key" else b"O") + encode_tuple(values)
