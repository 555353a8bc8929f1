"""A schema change as JSON, for destinations that keep events. docs/change_json.md describes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from penstock.destination.contract import SchemaChange
from penstock.destination.encode.commit_time import commit_time_text
from penstock.destination.encode.ndjson import event_object
from penstock.model.lsn import format_lsn
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import ColumnDefinition


def schema_events(change: SchemaChange) -> Iterator[tuple[TableChange, bytes]]:
    """One line for each table that was changed and of which events may tell."""
    for table in change.tables:
        if table.oid in change.silent:
            continue
        yield table, (event_object(**_event(change, table)) + "\n").encode()


def _event(change: SchemaChange, table: TableChange) -> dict[str, Any]:
    known = table.after or table.before
    assert known is not None  # noqa: S101 (one of both is there)
    return {
        "op": "schema",
        "schema": known.schema,
        "table": known.name,
        "table_id": table.oid,
        "position": {
            "commit_lsn": format_lsn(change.position.commit_lsn),
            "ordinal": change.position.ordinal,
        },
        "commit_time": commit_time_text(change.commit_micros),
        "command": change.tag,
        "rewrite": table.is_rewrite,
        "changes": [difference.text for difference in table.differences()],
        "columns": None if table.after is None else [_column(c) for c in table.after.columns],
        "primary_key": None if table.after is None else list(table.after.primary_key),
    }


def _column(column: ColumnDefinition) -> dict[str, Any]:
    """``id`` stays with the column for its whole life."""
    kind = column.type
    name = kind.name if not kind.is_user_defined else f"{kind.schema}.{kind.name}"
    return {
        "id": column.attnum,
        "name": column.name,
        "type": name + kind.modifier + ("[]" if kind.is_array else ""),
        "not_null": column.not_null,
        "default": column.default,
    }
