"""Changes as events: their order, their lanes, their keys, and those that are too large."""

from __future__ import annotations

import hashlib
import json
import pickle
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.decode.changes import ChangeSet
from penstock.destination.contract import SchemaChange
from penstock.destination.encode.penstock_json import PenstockFormat
from penstock.destination.families.queue import events as events_module
from penstock.destination.families.queue.events import Encoder, events_of, position_texts
from penstock.destination.families.queue.options import (
    ClaimCheckOptions,
    LaneBy,
    LaneOptions,
    OversizeOption,
)
from penstock.destination.families.queue.oversize import Oversize
from penstock.model.errors import DestinationError
from penstock.model.lsn import Frontier, Position
from penstock.model.schema_change import TableChange
from penstock.model.table_rows import TableRows
from penstock.testing.change_builder import ChangeBuilder, Column, table
from penstock.testing.contract.deliveries import definition

ITEMS = table("items", Column("id", "int8", key=True), Column("name", "text"))
NOTES = table("notes", Column("id", "int8", key=True), Column("body", "text"), schema="other")
LOOSE = table("loose", Column("a", "text"), identity="f")


def encoder(
    by: LaneBy = "key",
    count: int = 4,
    *,
    limit: int = 10**6,
    option: OversizeOption = "error",
    keys_are_lanes: bool = False,
) -> Encoder:
    oversize = Oversize("kafka", limit, option, "raise the limit")
    made = Encoder(PenstockFormat({}), LaneOptions(by=by, count=count), oversize, keys_are_lanes)
    copy: Encoder = pickle.loads(pickle.dumps(made))  # noqa: S301
    return copy


def some_changes(builder: ChangeBuilder) -> ChangeSet:
    for number in range(30):
        with builder.transaction():
            builder.insert(ITEMS, str(number), "a")
            builder.insert(NOTES, str(number), None)
            builder.insert(LOOSE, "equal")
            builder.update(ITEMS, str(number), "b")
    with builder.transaction():
        builder.truncate(ITEMS, LOOSE)
        builder.message("audit", b"hello")
    return builder.cut()


def places(events: pa.RecordBatch) -> list[tuple[int, int, int]]:
    columns = (events.column(name).to_pylist() for name in ("commit_lsn", "ordinal", "part"))
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("by", ["schema", "table", "key", "transaction"])
def test_lanes_have_every_event_once_and_in_order(
    by: LaneBy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events_module, "PART_BYTES", 2000)
    changes = some_changes(ChangeBuilder())
    whole = places(encoder(by).events(changes))
    assert whole == sorted(whole)
    lanes: dict[int, list[tuple[int, int, int]]] = {}
    parts = list(encoder(by).parts([changes]))
    assert len(parts) > len({part.lane for part in parts})
    for part in parts:
        events = events_of(part)
        assert places(events)[0][:2] == part.first
        lanes.setdefault(part.lane, []).extend(places(events))
    assert all(found == sorted(found) for found in lanes.values())
    # A TRUNCATE of two tables makes two events at one position.
    assert sorted(place for found in lanes.values() for place in found) == whole
    assert len(whole) == 30 * 4 + 3
    assert len(lanes) > 1


@pytest.mark.parametrize("by", ["schema", "table", "key", "transaction"])
def test_what_belongs_together_shares_a_lane(by: LaneBy) -> None:
    events = encoder(by, 1024).events(some_changes(ChangeBuilder())).to_pylist()
    lanes: dict[object, set[int]] = {}
    for event in events:
        if event["op"] not in ("insert", "update"):
            continue
        name = {
            "schema": event["schema"],
            "table": (event["schema"], event["table"]),
            "key": (event["table"], event["key"]),
            "transaction": event["commit_lsn"],
        }[by]
        lanes.setdefault(name, set()).add(event["lane_hash"])
    assert all(len(found) == 1 for found in lanes.values())
    assert len({*map(frozenset, lanes.values())}) == len(lanes) == {
        "schema": 2, "table": 3, "key": 61, "transaction": 30,
    }[by]  # fmt: skip


def test_the_lane_as_key() -> None:
    changes = some_changes(ChangeBuilder())
    by_table = encoder("table", keys_are_lanes=True).events(changes)
    assert set(by_table.column("key").to_pylist()[:4]) == {
        "public.items",
        "other.notes",
        "public.loose",
    }
    by_transaction = encoder("transaction", keys_are_lanes=True).events(changes)
    assert len(set(by_transaction.column("key").to_pylist())) == 31


def test_a_row_that_gets_another_key_leaves_its_lane_first() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
        builder.update(ITEMS, "2", "b", key=["1", None])
        builder.update(LOOSE, "y", full=["x"])
        builder.update(ITEMS, "2", "c")
        builder.delete(ITEMS, key=["2", None])
    events = encoder().events(builder.cut()).to_pylist()
    found = [(e["ordinal"], e["part"], e["op"], e["key"]) for e in events]
    assert found == [
        (0, 0, "insert", '{"id":1}'),
        (1, 0, "delete", '{"id":1}'),
        (1, 1, "update", '{"id":2}'),
        (2, 0, "update", None),
        (3, 0, "update", '{"id":2}'),
        (4, 0, "delete", '{"id":2}'),
    ]
    departure = json.loads(events[1]["value"])
    assert departure["op"] == "delete"
    assert departure["key"] == departure["old"] == {"id": 1}
    assert departure["new"] is None
    assert departure["position"] == json.loads(events[2]["value"])["position"]


def test_an_event_that_is_too_large_is_an_error() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "small")
        builder.insert(ITEMS, "2", "x" * 5000)
    changes = builder.cut()
    with pytest.raises(DestinationError, match=r"table public.items at 1/1010\+1 has 5,2") as error:
        encoder(limit=5000).events(changes)
    assert "raise the limit" in error.value.remedy
    assert "claim_check" in error.value.remedy
    assert len(encoder(limit=7000).events(changes)) == 2


def test_an_event_that_is_too_large_is_put_aside(tmp_path: Path) -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "small")
        builder.insert(ITEMS, "2", "x" * 5000)
    changes = builder.cut()
    whole = encoder().events(changes).column("value").to_pylist()
    option = ClaimCheckOptions(claim_check=str(tmp_path / "claims"))
    for _ in range(2):  # a task that ran twice
        events = encoder(limit=5000, option=option).events(changes)
        first, second = events.column("value").to_pylist()
        assert first == whole[0]
        stand_in = json.loads(second)
        assert stand_in["op"] == "insert"
        assert stand_in["key"] == {"id": 2}
        assert stand_in["position"] == json.loads(whole[1])["position"]
        check = stand_in["claim_check"]
        stored = Path(check["path"]).read_bytes()
        assert stored.decode() == whole[1]
        assert check["bytes"] == len(stored)
        assert check["sha256"] == hashlib.sha256(stored).hexdigest()
        assert events.column("key").to_pylist() == ['{"id":1}', '{"id":2}']
    assert len(list((tmp_path / "claims").iterdir())) == 1


def test_copied_rows_that_are_too_large_are_put_aside_each(tmp_path: Path) -> None:
    """They share a position, and must not share a file."""
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
    items = builder.cut().tables[0].table
    columns = pa.array(["1", "2"]), pa.array(["x" * 5000, "y" * 5000])
    rows = TableRows(items, columns, 2, Frontier(80, 88))
    option = ClaimCheckOptions(claim_check=str(tmp_path / "claims"))
    events = encoder(limit=5000, option=option).copied(rows)
    for value, letter in zip(events.column("value").to_pylist(), "xy", strict=True):
        check = json.loads(value)["claim_check"]
        stored = Path(check["path"]).read_bytes()
        assert hashlib.sha256(stored).hexdigest() == check["sha256"]
        assert json.loads(stored)["new"]["name"] == letter * 5000


def test_headers_of_the_format_count_and_are_not_put_aside(tmp_path: Path) -> None:
    """As that which names the columns that are unset: a table may have some hundred."""
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "small")
    events = encoder().events(builder.cut())
    headers = pa.array(["x" * 5000], pa.large_string())
    events = events.append_column("header penstock.unset", headers)
    claims = ClaimCheckOptions(claim_check=str(tmp_path / "claims"))
    options: tuple[OversizeOption, ...] = ("error", claims)
    for option in options:
        with pytest.raises(DestinationError, match="has 5,2"):
            Oversize("kafka", 5000, option, "raise the limit").checked(events)


def test_a_key_that_is_too_large_is_an_error_with_a_claim_check_too(tmp_path: Path) -> None:
    long = table("long", Column("id", "text", key=True))
    builder = ChangeBuilder()
    with builder.transaction():
        builder.delete(long, key=["k" * 5000])
    events = encoder().events(builder.cut())
    tombstone = events.set_column(
        events.schema.get_field_index("value"), "value", pa.nulls(1, pa.large_string())
    )
    claims = ClaimCheckOptions(claim_check=str(tmp_path / "claims"))
    for sent in (events, tombstone):
        with pytest.raises(DestinationError, match=r"table public\.long"):
            Oversize("kafka", 5000, claims, "raise the limit").checked(sent)


def test_tables_of_one_statement_have_positions_that_rise() -> None:
    """A reader leaves out what stands where something of the lane did: it would have been sent
    again. So does a sender that goes on amid the lane.
    """
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
        builder.truncate(ITEMS, NOTES, LOOSE)
    (lane,) = encoder("table", 1).parts([builder.cut()])
    told = SchemaChange(
        Position(5000, 2),
        0,
        "DROP TABLE",
        tuple(TableChange(definition(each), None) for each in (ITEMS, NOTES)),
    )
    found = [events_of(lane), encoder().schema_change(told)]
    assert [each.column("op").to_pylist()[-2:] for each in found] == [
        ["truncate"] * 2,
        ["schema"] * 2,
    ]
    assert [position_texts(each).to_pylist() for each in found] == [
        ["1/1010+0", "1/1010+1", "1/1010+1+1", "1/1010+1+2"],
        ["0/1388+2", "0/1388+2+1"],
    ]
