"""Every kind of event is what docs/change_json.schema.json says, and nothing else is."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from penstock.decode.changes import ChangeSet
from penstock.destination.contract import SchemaChange
from penstock.destination.encode.messages import EventFormat
from penstock.destination.encode.ndjson import FORMAT_VERSION, encode_changes, read_lines
from penstock.destination.encode.penstock_json import PenstockFormat
from penstock.destination.families.queue.versions import VersionedFormat
from penstock.model.lsn import Frontier, Position
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName
from penstock.model.table_rows import TableRows
from penstock.model.table_schema import TableSchema
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, table

DOCS = Path(__file__).parents[2] / "docs"
ITEMS = table("items", Column("id", "int8", key=True), Column("name", "text"))
WHOLE = table("whole", Column("a", "jsonb"), Column("b", "float8"), identity="f")
DEFINITION = TableDefinition(
    ITEMS.oid,
    "public",
    "items",
    "d",
    (
        ColumnDefinition(1, "id", TypeName("pg_catalog", "bigint"), not_null=True),
        ColumnDefinition(3, "name", TypeName("pg_catalog", "text"), default="'x'::text"),
    ),
    primary_key=("id",),
)
KINDS = {"insert", "update", "delete", "read", "truncate", "message", "schema"}

Event = dict[str, Any]


@cache
def validator() -> Draft202012Validator:
    schema = json.loads((DOCS / "change_json.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    return Draft202012Validator(schema)


def some_changes() -> ChangeSet:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", 'é "x"')
        builder.update(ITEMS, "1", UNSET)
        builder.update(ITEMS, "2", None, key=["1", None])
        builder.delete(ITEMS, key=["2", None])
        builder.insert(WHOLE, '{"k": [null]}', "NaN")
        builder.update(WHOLE, None, "1.5", full=['{"k": [null]}', "NaN"])
        builder.delete(WHOLE, full=[None, "1.5"])
        builder.truncate(ITEMS, WHOLE, cascade=True)
        builder.message("audit", b"hello")
        builder.message("audit", b"\xff")
    builder.message("loose", b"x", transactional=False)
    return builder.cut()


def copied(changes: ChangeSet) -> TableRows:
    (schema,) = (part.table for part in changes.tables if part.table.name == "items")
    columns = (pa.array(["1", "2"]), pa.array(["a", None]))
    return TableRows(schema, columns, 2, Frontier(0x50, 0x58))


def schema_changes() -> list[SchemaChange]:
    renamed = replace(DEFINITION, name="goods")
    pairs = [(None, DEFINITION), (DEFINITION, renamed), (renamed, None)]
    return [
        SchemaChange(Position(0x60, n), 10**15, "ALTER TABLE", (TableChange(*pair),))
        for n, pair in enumerate(pairs)
    ]


def lines() -> list[Event]:
    """What `stdout` and `files` write of rows."""
    changes = some_changes()
    texts = encode_changes(changes).text.to_pylist() + read_lines(copied(changes)).text.to_pylist()
    return [json.loads(text) for text in texts]


def events(encoder: EventFormat) -> list[Event]:
    """What queues get."""
    changes = some_changes()
    made = [encoder.changes(part) for part in changes.tables]
    made += [one for event in changes.truncates for one in encoder.truncate(event)]
    made += [encoder.message(event) for event in changes.messages]
    made += [one for change in schema_changes() for _, one in encoder.schema_change(change)]
    made.append(encoder.copied(copied(changes)))
    return [json.loads(text) for one in made for text in one.value.to_pylist()]


def first_column(_table: TableSchema, rows: pa.RecordBatch) -> pa.Array:
    return rows.column(0)


def plain() -> list[Event]:
    return events(PenstockFormat({}))


def with_everything() -> list[Event]:
    ids = {ITEMS.oid: {"id": 1, "name": 3}}
    return events(VersionedFormat(PenstockFormat({}, ids), first_column, in_events=True))


@pytest.mark.parametrize("made", [plain, with_everything])
def test_events_of_every_kind_are_as_the_schema_says(made: Callable[[], list[Event]]) -> None:
    found = made()
    assert {event["op"] for event in found} == KINDS
    for event in found:
        validator().validate(event)


def test_lines_are_as_the_schema_says() -> None:
    found = lines()
    assert {event["op"] for event in found} == KINDS - {"schema"}
    for event in found:
        validator().validate(event)


def test_what_the_page_shows_is_as_the_schema_says() -> None:
    page = (DOCS / "change_json.md").read_text()
    shown = [json.loads(line) for line in page.splitlines() if line.startswith('{"')]
    assert {event["op"] for event in shown} == {"update", "truncate", "message", "schema"}
    for event in shown:
        validator().validate(event)
    assert f"version {FORMAT_VERSION}" in page


@given(st.data())
def test_any_other_event_is_refused(data: st.DataObject) -> None:
    """A key less, a key more, or a value of another kind."""
    event = dict(data.draw(st.sampled_from(plain())))
    key = data.draw(st.sampled_from(sorted(event)))
    change = data.draw(st.sampled_from(["less", "more", "other"]))
    if change == "less":
        del event[key]
    elif change == "more":
        event["one_more"] = event[key]
    else:
        event[key] = {"not": [1.5]} if key not in ("key", "old", "new") else [1.5]
    assert not validator().is_valid(event)


@pytest.mark.parametrize(
    ("op", "key", "value"),
    [
        ("insert", "format", 2),
        ("insert", "op", "upsert"),
        ("insert", "new", None),
        ("delete", "new", {"id": 1}),
        ("read", "lsn", "0/50"),
        ("update", "lsn", "0/5z"),
        ("update", "commit_time", "2026-01-02 03:04:05"),
        ("message", "encoding", "latin1"),
        ("truncate", "tables", []),
    ],
)
def test_values_that_no_event_has(op: str, key: str, value: object) -> None:
    event = next(event for event in plain() if event["op"] == op)
    assert not validator().is_valid({**event, key: value})
