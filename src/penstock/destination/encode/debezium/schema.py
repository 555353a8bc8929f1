"""The schemas that go with keys and values where schemas are on, as Kafka Connect writes them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_SNAPSHOTS = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
# Name, type, whether it may be null.
_SOURCE = (
    ("version", "string", False),
    ("connector", "string", False),
    ("name", "string", False),
    ("ts_ms", "int64", False),
    ("snapshot", "string", True),
    ("db", "string", False),
    ("sequence", "string", True),
    ("ts_us", "int64", True),
    ("ts_ns", "int64", True),
    ("schema", "string", False),
    ("table", "string", False),
    ("txId", "int64", True),
    ("lsn", "int64", True),
    ("xmin", "int64", True),
    ("origin", "string", True),
    ("origin_lsn", "int64", True),
)
_TRANSACTION = (
    ("id", "string", False),
    ("total_order", "int64", False),
    ("data_collection_order", "int64", False),
)


def field_schema(
    schema: Mapping[str, Any], name: str, *, optional: bool, default: str | None = None
) -> dict[str, Any]:
    """The schema of one column; ``default`` is JSON."""
    members = {"type": schema["type"]}
    for part in ("fields", "items"):
        if part in schema:
            members[part] = schema[part]
    members["optional"] = optional
    members.update({part: value for part, value in schema.items() if part not in members})
    if default is not None:
        members["default"] = json.loads(default)
    return {**members, "field": name}


def key_schema(name: str, fields: Sequence[dict[str, Any]]) -> str:
    schema = {"type": "struct", "fields": list(fields), "optional": False, "name": f"{name}.Key"}
    return _text(schema)


def envelope_schema(name: str, fields: Sequence[dict[str, Any]]) -> str:
    """``name`` is the server's and the table's."""
    row = {"type": "struct", "fields": list(fields), "optional": True, "name": f"{name}.Value"}
    return _text(
        {
            "type": "struct",
            "fields": [
                {**row, "field": "before"},
                {**row, "field": "after"},
                _source(),
                _transaction(),
                _field("string", "op"),
                _field("int64", "ts_ms", optional=True),
                _field("int64", "ts_us", optional=True),
                _field("int64", "ts_ns", optional=True),
            ],
            "optional": False,
            "name": f"{name}.Envelope",
            "version": 2,
        }
    )


def message_schemas() -> tuple[str, str]:
    """Those of the key and of the value of a logical message."""
    prefix = _field("string", "prefix", optional=True)
    package = "io.debezium.connector.postgresql"
    content = {
        "type": "struct",
        "fields": [prefix, _field("bytes", "content", optional=True)],
        "optional": False,
        "name": f"{package}.Message",
        "version": 1,
        "field": "message",
    }
    fields = [
        _field("string", "op"),
        _field("int64", "ts_ms", optional=True),
        _source(),
        _transaction(),
        content,
    ]
    names = ((f"{package}.MessageKey", [prefix]), (f"{package}.MessageValue", fields))
    key, value = (
        {"type": "struct", "fields": parts, "optional": False, "name": name, "version": 1}
        for name, parts in names
    )
    return _text(key), _text(value)


def _source() -> dict[str, Any]:
    fields = [_field(kind, name, optional=optional) for name, kind, optional in _SOURCE]
    fields[4] = {
        "type": "string",
        "optional": True,
        "name": "io.debezium.data.Enum",
        "version": 1,
        "parameters": {"allowed": _SNAPSHOTS},
        "default": "false",
        "field": "snapshot",
    }
    return {
        "type": "struct",
        "fields": fields,
        "optional": False,
        "name": "io.debezium.connector.postgresql.Source",
        "version": 1,
        "field": "source",
    }


def _transaction() -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [_field(kind, name, optional=optional) for name, kind, optional in _TRANSACTION],
        "optional": True,
        "name": "event.block",
        "version": 1,
        "field": "transaction",
    }


def _field(kind: str, name: str, *, optional: bool = False) -> dict[str, Any]:
    return {"type": kind, "optional": optional, "field": name}


def _text(schema: dict[str, Any]) -> str:
    return json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
