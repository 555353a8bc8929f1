"""Our messages are Debezium's: the same SQL, compared with what a real engine made of it.

The engine's messages are in tests/golden/debezium. What differs by run is replaced on both sides;
every other difference has a name in docs/debezium_format.md and its place in the tables below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pytest
from psycopg import sql

from penstock.decode.changes import ChangeSet
from penstock.destination.encode.debezium.format import UNSET, DebeziumFormat
from penstock.destination.encode.debezium.options import DebeziumOptions
from penstock.destination.encode.messages import Messages
from penstock.model.lsn import Frontier
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import TableRows
from penstock.model.table_schema import TableSchema
from penstock.model.value_settings import VALUE_SETTINGS
from penstock.source.postgres.snapshot.arrow_columns import as_text
from penstock.source.postgres.snapshot.relations import read_relations
from penstock.transform.identity import identity_of
from tests.captured_sql import capture, definitions
from tests.fix_pipeline import PipelineUnderTest
from tests.golden.debezium.scenarios import DATABASE, SCENARIOS, SERVER, Scenario
from tests.logged_changes import SENTINEL

Json = Any

DIFFERENT_COLUMNS = {
    ("types", "path"): "types-left-out",
    ("types", "ring"): "types-left-out",
    ("types", "area"): "types-left-out",
    ("types", "spans"): "types-left-out",
    ("types", "query"): "types-left-out",
    ("types", "place"): "types-left-out",
    ("types", "pairing"): "types-left-out",
    ("types", "short_texts"): "types-left-out",
    ("types", "pairs"): "types-left-out",
    ("intervals", "spans"): "types-left-out",
    ("types", "ident"): "names-streamed",
    ("types", "moods"): "nulls-in-enum-arrays",
    ("types", "numbers"): "arrays-of-arrays",
    ("types", "words"): "arrays-of-arrays",
    ("numbers", "prices"): "arrays-of-arrays",
    ("numbers", "frees"): "arrays-of-arrays",
    ("rounded", "hundreds"): "negative-scale",
    ("times", "clocks"): "microseconds-in-arrays",
    ("times", "made"): "late-timestamps",
    ("defaults", "label"): "quotes-in-defaults",
}
"""Columns that are not what Debezium writes, and the name of the reason."""

DIFFERENT_KEYS = {"by_index": "keys-in-old-rows"}
"""The same for whole keys."""

NOT_MADE = {f"{SERVER}.transaction": "transaction-topic"}
"""Topics of Debezium that have no counterpart."""

REPLACED = {
    "version": "version",
    "ts_ms": "times",
    "ts_us": "times",
    "ts_ns": "times",
    "sequence": "sequence",
    "txId": "run",
    "lsn": "run",
    "snapshot": "snapshot-marks",
}
"""Fields of the source block that are replaced before a comparison, and why."""

REALS = {("types", "single")}
"""Columns of single precision, of which Java writes more digits than it takes."""

OPTIONS = {
    "converter.schemas.enable": "schemas",
    "decimal.handling.mode": "decimals",
    "time.precision.mode": "times",
    "interval.handling.mode": "intervals",
    "binary.handling.mode": "binary",
    "provide.transaction.metadata": "transaction",
}


@dataclass(frozen=True)
class Captured:
    """What our own capture and copy saw of a SQL file."""

    changes: tuple[ChangeSet, ...]
    definitions: dict[int, TableDefinition]
    rows: tuple[TableRows, ...]


@dataclass(frozen=True)
class Message:
    topic: str
    key: Json
    value: Json
    headers: dict[str, Json]


@pytest.fixture(scope="module")
def captured_before() -> dict[tuple[Any, ...], Captured]:
    return {}


@pytest.fixture
def captured(
    request: pytest.FixtureRequest,
    scenario: Scenario,
    pg_version: int,
    captured_before: dict[tuple[Any, ...], Captured],
) -> Captured:
    """Once for all scenarios that share a SQL file."""
    key = (pg_version, scenario.sql, scenario.copied)
    if key not in captured_before:
        captured_before[key] = _capture(request.getfixturevalue("pipeline"), scenario)
    return captured_before[key]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
def test_the_messages_are_debeziums(scenario: Scenario, captured: Captured) -> None:
    chosen = {OPTIONS[name]: value for name, value in scenario.settings.items() if name in OPTIONS}
    options = DebeziumOptions.model_validate({"server": SERVER, "database": DATABASE, **chosen})
    keys = {oid: identity_of(table) for oid, table in captured.definitions.items()}
    ours = list(_our_messages(DebeziumFormat(options, captured.definitions, keys), captured))
    theirs = list(_golden(scenario))
    assert [(m.topic, m.value is None) for m in ours] == [
        (m.topic, m.value is None) for m in theirs
    ]
    seen: set[Any] = set()
    for our, their in zip(ours, theirs, strict=True):
        _compare(our, their, seen)
    _SEEN.update(seen)
    _COMPARED.add(scenario.name)


_SEEN: set[Any] = set()
_COMPARED: set[str] = set()


def test_every_named_difference_was_seen() -> None:
    """Runs after the comparisons: one that is gone has to leave the tables."""
    if len(_COMPARED) < len(SCENARIOS):
        pytest.skip("not all comparisons ran before this test, or some failed")
    assert {*DIFFERENT_COLUMNS, *DIFFERENT_KEYS} == _SEEN


def test_every_named_difference_is_documented() -> None:
    page = (Path(__file__).parents[2] / "docs" / "debezium_format.md").read_text()
    tables = (DIFFERENT_COLUMNS, DIFFERENT_KEYS, NOT_MADE, REPLACED)
    names = {name for table in tables for name in table.values()} | {"transaction-numbers"}
    assert names <= set(re.findall(r"^\| `([a-z-]+)` \|", page, re.MULTILINE))


def _compare(our: Message, their: Message, seen: set[Any]) -> None:
    table = our.topic.rsplit(".", 1)[-1]
    if (our.key, our.headers) != (their.key, their.headers):
        assert table in DIFFERENT_KEYS, (our.key, their.key, our.headers, their.headers)
        assert our.key is not None
        seen.add(table)
    if our.value is None:
        return
    ours, theirs = our.value, their.value
    if "schema" in ours:
        for number in range(2):
            both = (value["schema"]["fields"][number] for value in (ours, theirs))
            _drop_different_fields(table, next(both), next(both), seen)
        assert ours["schema"] == theirs["schema"]
        ours, theirs = ours["payload"], theirs["payload"]
    for image in ("before", "after"):
        if ours.get(image) is not None and theirs.get(image) is not None:
            _drop_different(table, ours[image], theirs[image], seen)
            ours[image] = _as_read(table, ours[image], theirs[image])
            theirs[image] = _as_read(table, theirs[image], ours[image])
    assert ours == theirs


def _drop_different(table: str, ours: Json, theirs: Json, seen: set[Any]) -> None:
    """Take away what differs and has a name for that."""
    for column in [*ours, *(name for name in theirs if name not in ours)]:
        if ours.get(column, ...) != theirs.get(column, ...) and (table, column) in (
            DIFFERENT_COLUMNS
        ):
            seen.add((table, column))
            ours.pop(column, None)
            theirs.pop(column, None)


def _as_read(table: str, row: Json, other: Json) -> Json:
    """Numbers as a reader of doubles and of reals takes them: digits beyond that may differ."""
    return {
        column: float(np.float32(value))
        if (table, column) in REALS and isinstance(value, float)
        else float(value)
        if isinstance(value, int) and isinstance(other.get(column), float)
        else value
        for column, value in row.items()
    }


def _drop_different_fields(table: str, ours: Json, theirs: Json, seen: set[Any]) -> None:
    """The same in the schemas of rows, which are lists."""
    if "fields" not in ours:
        return
    our, their = ({f["field"]: f for f in schema["fields"]} for schema in (ours, theirs))
    _drop_different(table, our, their, seen)
    ours["fields"], theirs["fields"] = list(our.values()), list(their.values())


# -- theirs ------------------------------------------------------------------------------------


def _golden(scenario: Scenario) -> Iterator[Message]:
    for line in scenario.messages.read_text().splitlines():
        message = json.loads(line)
        if message["topic"] in NOT_MADE:
            continue
        value = message["value"]
        _replace(value)
        yield Message(message["topic"], message["key"], value, message["headers"])


def _replace(value: Json) -> None:
    """What differs by run becomes the same; what a task cannot know goes."""
    if value is None:
        return
    payload = value.get("payload", value)
    source = payload["source"]
    for name in REPLACED:
        source[name] = None
    for name in ("ts_ms", "ts_us", "ts_ns"):
        payload.pop(name, None)
    payload["transaction"] = payload["transaction"] is not None


# -- ours --------------------------------------------------------------------------------------


def _our_messages(encoder: DebeziumFormat, captured: Captured) -> Iterator[Message]:
    for rows in captured.rows:
        yield from _messages(encoder.copied(rows), rows.table.qualified_name)
    found: dict[tuple[int, int, int], Message] = {}
    for part in captured.changes:
        for changes in part.tables:
            made = encoder.changes(changes)
            texts = _messages(made, changes.table.qualified_name)
            for row, number, message in zip(made.row, made.part, texts, strict=True):
                place = (int(changes.commit_lsn[row]), int(changes.ordinal[row]), int(number))
                found[place] = message
        for truncate in part.truncates:
            tables = zip(truncate.tables, encoder.truncate(truncate), strict=True)
            for number, (table, made) in enumerate(tables):
                (message,) = _messages(made, table.qualified_name)
                position = truncate.stamp.position
                found[position.commit_lsn, position.ordinal, number] = message
        for event in part.messages:
            if event.prefix != SENTINEL:
                (message,) = _messages(encoder.message(event), "message")
                position = event.stamp.position
                found[position.commit_lsn, position.ordinal, 0] = message
    for place in sorted(found):
        yield found[place]


def _messages(made: Messages, name: str) -> Iterator[Message]:
    headers: list[dict[str, Json]] = [{} for _ in range(len(made))]
    for header, texts in made.headers:
        for own, text in zip(headers, texts.to_pylist(), strict=True):
            if text is not None and header != UNSET:
                own[header] = json.loads(text)
    columns = (made.key.to_pylist(), made.value.to_pylist(), headers)
    for key, value, own in zip(*columns, strict=True):
        parsed = None if value is None else json.loads(value)
        _check_source(parsed)
        _replace(parsed)
        yield Message(f"{SERVER}.{name}", None if key is None else json.loads(key), parsed, own)


def _check_source(value: Json) -> None:
    """What ``_replace`` takes away is of the right kind before it goes."""
    if value is None:
        return
    payload = value.get("payload", value)
    source = payload["source"]
    assert source["ts_us"] // 1000 == source["ts_ms"]
    assert source["ts_ns"] == source["ts_us"] * 1000
    assert payload["ts_ms"] == source["ts_ms"]
    commit_lsn, lsn = json.loads(source["sequence"])
    assert int(lsn) == source["lsn"]
    if source["snapshot"] == "true":
        assert commit_lsn is None
        assert source["txId"] is None
    else:
        assert int(commit_lsn) > 0
    if (transaction := payload["transaction"]) is not None:
        assert transaction["id"] == f"{source['txId']}:{commit_lsn}"
        assert transaction["total_order"] == transaction["data_collection_order"] > 0


def _capture(pipeline: PipelineUnderTest, scenario: Scenario) -> Captured:
    changes, (found, rows) = capture(
        pipeline, *scenario.statements(), lambda conn: _tables(conn, scenario)
    )
    return Captured(changes, found, rows)


def _tables(
    conn: psycopg.Connection[Any], scenario: Scenario
) -> tuple[dict[int, TableDefinition], tuple[TableRows, ...]]:
    """The definitions of all tables, and where the scenario copies, their rows."""
    for setting in VALUE_SETTINGS:
        conn.execute(setting.encode())
    found = definitions(conn)
    if scenario.settings.get("snapshot.mode") != "initial":
        return found, ()
    sources = read_relations(conn, list(found.values()), [], {}).found.values()
    rows = [_copied(conn, source.table) for source in sources]
    return found, tuple(sorted(rows, key=lambda copied: copied.table.name))


def _copied(conn: psycopg.Connection[Any], table: TableSchema) -> TableRows:
    query = sql.SQL("SELECT {} FROM {} ORDER BY ctid").format(
        sql.SQL(", ").join(as_text(column) for column in table.columns),
        sql.Identifier(table.schema, table.name),
    )
    # Only what was there before the stream was copied.
    rows = [row for row in conn.execute(query).fetchall() if "streamed" not in row]
    columns = tuple(pa.array(values, pa.string()) for values in zip(*rows, strict=True))
    return TableRows(table, columns, len(rows), Frontier(0x50, 0x58))
