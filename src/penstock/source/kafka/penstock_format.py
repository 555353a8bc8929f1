"""Messages of Penstock's own JSON (docs/change_json.md). Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, cast

from penstock.model.lsn import parse_lsn
from penstock.model.table_name import TableName
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
from penstock.source.kafka.json_members import members, string, strings
from penstock.source.kafka.offsets import SourcePosition
from penstock.source.kafka.topic_tables import ToldColumn, ToldTable

_ROWS = frozenset({"insert", "update", "delete", "read"})


class PenstockMessages(MessageFormat):
    """Rows and TRUNCATE. Schema events stand in a topic of their own (``told_table``)."""

    def read(
        self, key: bytes | None, value: bytes | None, headers: Headers, find: FindTable
    ) -> Event | None:
        if value is None:
            raise Malformed("it has no value, which Penstock's JSON never lacks")
        try:
            found = members(value.decode())
            if found.get("format") != "1":
                raise Malformed("it is not Penstock's JSON, version 1")
            op = string(found["op"])
            if "claim_check" in found:
                raise Malformed(
                    "it is a claim check: its row is in another place, which is not read"
                )
            if op in _ROWS:
                return _row(cast("RowOp", op), found, headers, find)
            if op == "truncate":
                return _truncate(found, headers, find)
            if op in ("message", "schema"):
                return None
            raise Malformed(f"it has the unknown operation {op[:40]!r}")
        except KeyError as error:
            raise Malformed(f"it has no {error.args[0]!r}") from None
        except (ValueError, TypeError) as error:
            raise Malformed(f"it cannot be read: {error}") from None


def _row(op: RowOp, found: Mapping[str, str], headers: Headers, find: FindTable) -> RowEvent | None:
    table = find(TableName(string(found["schema"]), string(found["table"])))
    if table is None:
        return None
    key = _values(found["key"], table)
    old = _values(found["old"], table)
    new = _values(found["new"], table)
    unset = frozenset(strings(found["unset"])) if found["unset"] != "[]" else frozenset()
    if op == "delete":
        key = key if key is not None else old
        if key is None or new is not None:
            raise Malformed("it is a delete without a key, or with a new row")
    elif new is None:
        raise Malformed(f"it is a row ({op}) without values")
    unknown = [name for name in (*(new or {}), *unset) if name not in table.places]
    if unknown:
        raise Malformed(f"table {table.table_name} has no column {unknown[0]}, as far as was told")
    missing = [name for name in table.primary_key if (key or {}).get(name) is None]
    if key is None or missing:
        raise Malformed(
            f"its key lacks {', '.join(missing or table.primary_key)} of table {table.table_name}: "
            "the pipeline that wrote it identifies rows in another way"
        )
    old_key = None
    if op == "update" and old is not None and all(old.get(n) for n in table.primary_key):
        old_key = {name: old[name] for name in table.primary_key}
    return RowEvent(
        op,
        table,
        key,
        new,
        unset,
        old_key,
        header_position(headers) or _position(found),
        header_lane(headers),
        _micros(found["commit_time"]),
    )


def _truncate(found: Mapping[str, str], headers: Headers, find: FindTable) -> ToldTruncate | None:
    names = [TableName(each["schema"], each["table"]) for each in json.loads(found["tables"])]
    tables = tuple(table for name in names if (table := find(name)) is not None)
    if not tables:
        return None
    return ToldTruncate(
        tables,
        header_position(headers) or _position(found),
        header_lane(headers),
        _micros(found["commit_time"]),
    )


def _values(text: str, table: ToldTable) -> Values | None:
    if text == "null":
        return None
    embedded = table.json_columns
    return {name: _value(value, is_json=name in embedded) for name, value in members(text).items()}


def _value(text: str, *, is_json: bool) -> bytes | None:
    if text == "null":
        return None
    if is_json:
        return text.encode()
    if text[0] == '"':
        return string(text).encode()
    if text == "true":
        return b"t"
    if text == "false":
        return b"f"
    return text.encode()


def _position(found: Mapping[str, str]) -> SourcePosition:
    at = json.loads(found["position"])
    return SourcePosition(parse_lsn(at["commit_lsn"]), int(at["ordinal"]))


def _micros(text: str) -> int:
    if text == "null":
        return 0
    moment = datetime.fromisoformat(string(text))
    return int(moment.timestamp()) * 1_000_000 + moment.microsecond


def told_table(value: bytes) -> ToldTable | None:
    """The table that a schema event tells of; None for one that was dropped. Raises Malformed."""
    try:
        found: dict[str, Any] = json.loads(value)
        if found["format"] != 1 or found["op"] != "schema":
            raise Malformed("it is no schema event of Penstock's JSON, version 1")
        if found["columns"] is None:
            return None
        return ToldTable(
            _text(found["schema"]),
            _text(found["table"]),
            tuple(
                ToldColumn(
                    int(c["id"]),
                    _text(c["name"]),
                    _text(c["type"]),
                    bool(c["not_null"]),
                    c["default"] is not None,
                )
                for c in found["columns"]
            ),
            tuple(map(_text, found["primary_key"])),
            int(found["table_id"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Malformed(f"it cannot be read as a schema event: {error!r}") from None


def _text(value: object) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise ValueError(f"a name was expected, found {str(value)[:40]!r}")
    return value
