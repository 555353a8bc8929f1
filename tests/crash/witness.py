"""What Postgres itself says was committed: a second slot on the same publication, read at the end.

Independent of capture, change log and Spark; it shares with them only the parsing of single
messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import psycopg

from penstock.model.lsn import Position
from penstock.model.value_settings import VALUE_SETTINGS
from penstock.pgoutput.messages import (
    Begin,
    Delete,
    Insert,
    LogicalMessage,
    Relation,
    Truncate,
    Unset,
    Update,
    Value,
    parse_message,
)

SLOT = "witness"

Values = dict[str, str | None]


class Change(NamedTuple):
    """One change of one table; a TRUNCATE of several tables stands once for each of them.

    ``table`` is the prefix of a message, whose content is ``new``. A column that was not sent is
    not there.
    """

    position: Position
    table: str
    op: str
    new: Values | None = None
    old: Values | None = None


def call_witness(url: str) -> None:
    """Let it begin; every transaction that begins later is seen."""
    with psycopg.connect(url, autocommit=True) as conn:
        conn.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", [SLOT])


def hear_witness(url: str, *publications: str) -> list[Change]:
    """Everything since, in the order in which Postgres sends it."""
    with psycopg.connect(url, autocommit=True) as conn:
        for setting in VALUE_SETTINGS:
            conn.execute(setting)
        rows = conn.execute(
            "SELECT data FROM pg_logical_slot_peek_binary_changes(%s, NULL, NULL,"
            " 'proto_version', '1', 'publication_names', %s, 'messages', 'true')",
            [SLOT, ",".join(publications)],
            binary=True,
        )
        return list(_changes(rows))


def _changes(rows: psycopg.Cursor[Any]) -> Iterator[Change]:
    relations: dict[int, Relation] = {}
    commit_lsn = ordinal = 0
    for (data,) in rows:
        message = parse_message(bytes(data))
        if isinstance(message, Relation):
            relations[message.oid] = message
        elif isinstance(message, Begin):
            commit_lsn, ordinal = message.commit_lsn, 0
        elif isinstance(message, LogicalMessage) and not message.transactional:
            # Between transactions, at the last byte of its record.
            yield _message(Position(message.lsn - 1, 0), message)
        elif isinstance(message, Insert | Update | Delete | Truncate | LogicalMessage):
            position = Position(commit_lsn, ordinal)
            ordinal += 1
            if isinstance(message, LogicalMessage):
                yield _message(position, message)
            elif isinstance(message, Truncate):
                for oid in sorted(message.relations, key=lambda oid: relations[oid].name):
                    yield Change(position, relations[oid].name, "truncate")
            else:
                yield _row(position, relations[message.relation], message)


def _message(position: Position, message: LogicalMessage) -> Change:
    content = message.content.hex()
    return Change(position, message.prefix, "message", {"content": content})


def _row(position: Position, relation: Relation, message: Insert | Update | Delete) -> Change:
    names = [column.name for column in relation.columns]
    keys = {column.name for column in relation.columns if column.is_key}
    old = None
    if not isinstance(message, Insert) and message.old is not None:
        old = _values(names, message.old)
        if message.old_kind == "key":
            old = {name: value for name, value in old.items() if name in keys}
    new = None if isinstance(message, Delete) else _values(names, message.new)
    if new is not None and old is not None and isinstance(message, Update):
        # A full old row says what an unchanged value is, though the new one does not.
        unset = () if message.old_kind == "key" else old.keys() - new.keys()
        new |= {name: old[name] for name in unset}
    op = type(message).__name__.lower()
    return Change(position, relation.name, op, new, old)


def _values(names: list[str], row: tuple[Value, ...]) -> Values:
    return {
        name: None if value is None else value.decode()
        for name, value in zip(names, row, strict=True)
        if not isinstance(value, Unset)
    }
