"""Messages of Debezium's Postgres connector, and of Penstock in its format, as JSON with schemas
(``schemas.enable``): they tell themselves what their tables look like. Pure.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from penstock.model.table_name import TableName
from penstock.source.kafka.connect_values import ConnectType, connect_type, parsed
from penstock.source.kafka.events import (
    Event,
    FindTable,
    Headers,
    Malformed,
    MessageFormat,
    RowEvent,
    RowOp,
    ToldTruncate,
    Values,
    header_lane,
    header_position,
)
from penstock.source.kafka.json_members import members
from penstock.source.kafka.topic_tables import ToldColumn, ToldTable

_OPS: dict[str, RowOp] = {"c": "insert", "u": "update", "d": "delete", "r": "read"}
_MOST_DELETED = 10_000
_PLACEHOLDER = "__debezium_unavailable_value"
_PLACEHOLDERS = (
    _PLACEHOLDER,
    base64.b64encode(_PLACEHOLDER.encode()).decode(),
    [_PLACEHOLDER],
    [ord(character) for character in _PLACEHOLDER],
)


class Untold(Malformed):
    """A message that tells of a table what is not known yet."""

    def __init__(self, table: ToldTable) -> None:
        super().__init__(f"table {table.table_name} looks different than was told")
        self.table = table


@dataclass(frozen=True)
class _Fields:
    """The fields of a row, or of a key."""

    types: Mapping[str, ConnectType]
    optional: frozenset[str]
    defaults: frozenset[str]


class DebeziumMessages(MessageFormat):
    """Rows and TRUNCATE. A tombstone is a delete where compaction has removed the delete."""

    def __init__(self) -> None:
        self._deleted: dict[bytes, None] = {}

    def read(
        self, key: bytes | None, value: bytes | None, headers: Headers, find: FindTable
    ) -> Event | None:
        try:
            if value is None:
                return self._tombstone(key, find)
            event = self._read(key, value.decode(), headers, find)
            if key is not None and isinstance(event, RowEvent):
                self._note(key, is_deleted=event.op == "delete")
            return event
        except KeyError as error:
            raise Malformed(f"it has no {error.args[0]!r}") from None
        except (ValueError, TypeError, IndexError, OverflowError) as error:
            raise Malformed(f"it cannot be read: {error}") from None

    def _read(
        self, key: bytes | None, value: str, headers: Headers, find: FindTable
    ) -> Event | None:
        whole = members(value)
        if "schema" not in whole or "payload" not in whole or len(whole) != 2:
            raise Malformed(
                "it has no schema beside its payload: let its writer send schemas (Debezium: "
                "schemas.enable of the converter, for keys and values; Penstock: debezium: "
                "{schemas: true})"
            )
        if whole["payload"] == "null":
            return None
        payload = parsed(whole["payload"])
        op = payload["op"]
        if op == "m":
            return None
        source = payload["source"]
        name = TableName(_name(source["schema"]), _name(source["table"]))
        micros = int(source.get("ts_us") or 1000 * int(source.get("ts_ms") or 0))
        position, lane = header_position(headers), header_lane(headers)
        if op == "t":
            known = _found(find, name)
            if known is None:
                return None
            return ToldTruncate((known,), position, lane, micros)
        if op not in _OPS:
            raise Malformed(f"it has the unknown operation {str(op)[:40]!r}")
        if _is_left_out(find, name):
            return None
        row = _row_fields(whole["schema"])
        keys, told_key = _key(key)
        table = self._table(name, row, keys, find, int(source.get("lsn") or 0))
        if table is None:
            return None
        found_key = _values(told_key, keys, frozenset())
        if any(found_key[each] is None for each in table.primary_key):
            raise Malformed("its key has a null")
        if op == "d":
            return RowEvent(
                "delete", table, found_key, None, frozenset(), None, position, lane, micros
            )
        after = payload["after"]
        unset = _unset(after, headers)
        new = _values(after, row, unset)
        old_key = _old_key(headers, keys) if unset else None
        return RowEvent(_OPS[op], table, found_key, new, unset, old_key, position, lane, micros)

    def _note(self, key: bytes, *, is_deleted: bool) -> None:
        self._deleted.pop(key, None)
        if is_deleted:
            self._deleted[key] = None
            if len(self._deleted) > _MOST_DELETED:
                del self._deleted[next(iter(self._deleted))]

    def _tombstone(self, key: bytes | None, find: FindTable) -> RowEvent | None:
        if key is None:
            raise Malformed("it has neither key nor value")
        if key in self._deleted:
            # It stands behind a delete, which has said so.
            return None
        fields, told = _key(key)
        name = str(parsed(members(key.decode())["schema"]).get("name")).removesuffix(".Key")
        *_, schema, table = ("", "", *name.split("."))
        known = _found(find, TableName(schema, table))
        if known is None or not set(known.primary_key) <= fields.types.keys():
            return None
        return RowEvent("delete", known, _values(told, fields, frozenset()), None)

    def _table(
        self, name: TableName, row: _Fields, key: _Fields, find: FindTable, lsn: int
    ) -> ToldTable | None:
        """The table as it is known. Raises Untold where the message is newer than that."""
        try:
            known = find(name)
        except Malformed:
            raise Untold(_told(name, row, key, lsn, None)) from None
        if known is None:
            return None
        told = _told(name, row, key, lsn, known)
        same = replace(told, oid=known.oid, former=known.former, told_at=known.told_at)
        if same != known:
            if lsn > known.told_at:
                raise Untold(told)
            if any(column not in known.places for column in row.types):
                raise Malformed(f"table {name} has other columns than were told")
        return known


def _is_left_out(find: FindTable, name: TableName) -> bool:
    """Whether nobody asks for the table: then it may be one that cannot be read."""
    try:
        return find(name) is None
    except Malformed:
        return False


def _found(find: FindTable, name: TableName) -> ToldTable | None:
    try:
        return find(name)
    except Malformed:
        # Nothing of the table has come yet.
        return None


def _told(
    name: TableName, row: _Fields, key: _Fields, lsn: int, known: ToldTable | None
) -> ToldTable:
    """Columns have no numbers here: one that is gone and one that is new are two."""
    numbers = {} if known is None else {c.name: c.number for c in known.columns}
    former = () if known is None else known.former
    used = {*numbers.values(), *(number for _, number in former)}
    columns = []
    for column, kind in row.types.items():
        if column not in numbers:
            numbers[column] = max(used, default=0) + 1
            used.add(numbers[column])
        columns.append(
            ToldColumn(
                numbers[column],
                column,
                kind.type,
                column not in row.optional,
                column in row.defaults,
            )
        )
    return ToldTable(name.schema, name.name, tuple(columns), tuple(key.types), told_at=lsn)


@lru_cache(maxsize=1024)
def _row_fields(schema: str) -> _Fields:
    """Of the row in an envelope's schema."""
    for field in parsed(schema)["fields"]:
        if field["field"] == "after":
            return _fields(field["fields"])
    raise Malformed("its schema has no row")


@lru_cache(maxsize=1024)
def _key_fields(schema: str) -> _Fields:
    return _fields(parsed(schema)["fields"])


def _fields(fields: list[dict[str, Any]]) -> _Fields:
    return _Fields(
        {_name(field["field"]): connect_type(field) for field in fields},
        frozenset(field["field"] for field in fields if field.get("optional")),
        frozenset(field["field"] for field in fields if field.get("default") is not None),
    )


def _key(key: bytes | None) -> tuple[_Fields, Mapping[str, Any]]:
    if key is None:
        raise Malformed("it has no key: a message that comes again could not be told from another")
    whole = members(key.decode())
    if whole.keys() != {"schema", "payload"}:
        raise Malformed("its key has no schema beside its payload")
    return _key_fields(whole["schema"]), parsed(whole["payload"])


def _old_key(headers: Headers, fields: _Fields) -> Values | None:
    """Under which key the row stood that an update has moved; None where no header says so."""
    text = headers.get("__debezium.oldkey")
    if text is None:
        return None
    whole = parsed(text.decode())
    bare = whole["payload"] if whole.keys() == {"schema", "payload"} else whole
    return _values(bare, fields, frozenset())


def _values(row: Mapping[str, Any], fields: _Fields, unset: frozenset[str]) -> Values:
    return {
        name: None if row[name] is None else kind.decode(row[name]).encode()
        for name, kind in fields.types.items()
        if name not in unset
    }


def _unset(row: Mapping[str, Any], headers: Headers) -> frozenset[str]:
    """Columns that keep their values: Debezium's placeholder stands there, or Penstock names them.

    A row that holds the placeholder as its own value is taken for one that does not.
    """
    named = headers.get("penstock.unset")
    found = {name for name, value in row.items() if value in _PLACEHOLDERS}
    if named is not None:
        found |= set(parsed(named.decode()))
    return frozenset(found)


def _name(value: object) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"a name was expected, found {str(value)[:40]!r}")
    return value
