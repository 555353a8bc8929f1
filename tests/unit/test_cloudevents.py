"""Events in the envelope of CloudEvents."""

from __future__ import annotations

import json
from dataclasses import replace

from penstock.destination.contract import SchemaChange
from penstock.destination.families.queue.events import Encoder
from penstock.destination.families.queue.formats import Formats
from penstock.destination.families.queue.options import FormatOptions, LaneOptions
from penstock.destination.families.queue.oversize import Oversize
from penstock.model.lsn import Position
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TableDefinition
from penstock.testing.change_builder import ChangeBuilder
from penstock.testing.contract.chunk_rows import ChunkRows
from penstock.testing.contract.deliveries import BARE, ITEMS, LOOSE, NOTES, definition

ENCODERS = {}
for name in ("penstock", "cloudevents"):
    formats = Formats(FormatOptions.model_validate({"format": name}), "shop")
    formats.know(map(definition, (ITEMS, NOTES, LOOSE, BARE)))
    ENCODERS[name] = Encoder(formats.format(), LaneOptions(), Oversize("x", 2**40, "error", ""))


def test_every_kind_of_event_has_an_id_of_its_own_and_the_same_data() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", 'a "quoted" \\ text')
        builder.update(ITEMS, "2", "moved", key=["1", None])
        builder.insert(LOOSE, "x", None)
        builder.delete(ITEMS, key=["2", None])
        builder.truncate(ITEMS, NOTES)
    changes = builder.cut()
    plain = [
        json.loads(v) for v in ENCODERS["penstock"].events(changes).column("value").to_pylist()
    ]
    found = [
        json.loads(v) for v in ENCODERS["cloudevents"].events(changes).column("value").to_pylist()
    ]
    assert [event["data"] for event in found] == plain
    assert len({event["id"] for event in found}) == len(found)
    assert [event["type"] for event in found] == [f"penstock.{event['op']}" for event in plain]
    for event in found:
        assert event["specversion"] == "1.0"
        assert event["source"] == "/penstock/shop"
        assert event["time"].endswith("Z")
        assert event["subject"].startswith("public.")
        key = event["data"].get("key")
        assert event.get("partitionkey") == (key and json.dumps(key, separators=(",", ":")))
    sequences = [event["sequence"] for event in found]
    assert sequences == sorted(sequences)


def test_copied_rows_are_told_apart() -> None:
    for of, rows in ((ITEMS, [("1", "a"), ("2", "a")]), (LOOSE, [("1", "a"), ("2", "a")])):
        values = [
            value
            for piece in ChunkRows(of, "0", rows, piece=5).texts()
            for value in ENCODERS["cloudevents"].copied(piece).column("value").to_pylist()
        ]
        events = [json.loads(value) for value in values]
        assert len({event["id"] for event in events}) == 2
        assert {event["type"] for event in events} == {"penstock.read"}
        assert all("time" not in event for event in events)


def test_announcements_are_told_apart_by_what_they_say() -> None:
    """They have no position: a reader that knows ids would take the next for one that it has."""
    encoder, before = ENCODERS["cloudevents"], definition(ITEMS)
    after = replace(before, primary_key=())

    def announced(table: TableDefinition) -> str:
        told = SchemaChange(Position(0, 0), 0, "ANNOUNCE", (TableChange(None, table),))
        (value,) = encoder.schema_change(told).column("value").to_pylist()
        found: str = json.loads(value)["id"]
        return found

    assert announced(before) == announced(before)
    assert len({announced(before), announced(after), announced(definition(NOTES))}) == 3
