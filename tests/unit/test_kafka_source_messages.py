"""Messages of topics, back to what a slot would have sent."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock.model.errors import IdentityChanged, SourceError
from penstock.model.table_name import TableName
from penstock.pgoutput.messages import UNSET, Delete, Insert, Update, parse_message
from penstock.source.kafka.column_types import column_type
from penstock.source.kafka.debezium_format import DebeziumMessages, Untold
from penstock.source.kafka.events import Event, Headers, Malformed, RowEvent
from penstock.source.kafka.json_members import members
from penstock.source.kafka.newer_changes import NewerChanges
from penstock.source.kafka.offsets import (
    START,
    Ended,
    Offsets,
    Partition,
    PartitionState,
    SourcePosition,
    frontier_of,
    position_of,
    told_frontier,
)
from penstock.source.kafka.penstock_format import PenstockMessages, told_table
from penstock.source.kafka.topic_tables import ToldColumn, ToldTable, TopicTables
from penstock.source.kafka.transcode import (
    Counts,
    Transcoder,
    expect_source,
    keeps_order,
    note_source,
)

GOLDEN = Path(__file__).parents[1] / "golden" / "debezium" / "messages"
PLACE = Partition("shop.public.items", 0)


def known(*more: ToldColumn) -> ToldTable:
    columns = (
        ToldColumn(1, "id", "bigint", not_null=True),
        ToldColumn(2, "name", "text"),
        ToldColumn(3, "doc", "json"),
        *more,
    )
    told = TopicTables().told([ToldTable("public", "items", columns, ("id",), 77)], 8)
    return next(iter(told.tables.values()))


def message(op: str, **parts: Any) -> bytes:
    body: dict[str, Any] = {
        "format": 1,
        "op": op,
        "schema": "public",
        "table": "items",
        "position": {"commit_lsn": "0/10", "ordinal": 0},
        "commit_time": "2026-01-02T03:04:05.678901Z",
        "key": {"id": 1},
        "old": None,
        "new": {"id": 1, "name": "a", "doc": None},
        "unset": [],
        **parts,
    }
    return json.dumps(body).encode()


def read(value: bytes, table: ToldTable | None = None, **headers: bytes) -> Event | None:
    found = table or known()
    named = {f"penstock.{name}": text for name, text in headers.items()}
    return PenstockMessages().read(b"k", value, named, lambda _: found)


# -- positions ---------------------------------------------------------------------------------


def test_positions_rise_with_every_message_and_leave_room_for_what_is_told_of_tables() -> None:
    ends = [START]
    for total in range(5):
        ends += [told_frontier(total), frontier_of(total + 1)]
    assert ends == sorted(ends)
    for before, after in pairwise(ends):
        assert before.commit_lsn < before.end_lsn <= after.commit_lsn
    assert all(at.commit_lsn % 8 == 0 for at in ends)
    assert frontier_of(7).end_lsn == position_of(7)


def test_offsets_are_what_they_were() -> None:
    at = SourcePosition(16, 3, 1)
    offsets = Offsets(
        {
            PLACE: PartitionState(5, {"0/2 key": at}, at, 12),
            Partition("gone", 3): PartitionState(7),
            Partition("marks", 0): PartitionState(0, ended=Ended(7, 300, 5).then(8, 400, 4)),
        },
        {"shop.public.items": "an id"},
    )
    again = Offsets.from_json(offsets.to_json())
    assert (again.partitions, again.total) == (offsets.partitions, 12)
    assert again.topic_ids["shop.public.items"] == "an id"
    older = PartitionState.from_json({"next": 0, "ended": [7, 300, 5]})
    assert older.ended == Ended(7, 300, 5)


# -- Penstock's JSON -----------------------------------------------------------------------------


def test_no_digit_and_no_space_of_a_value_is_lost() -> None:
    doc = '{"a":  1.50, "n": 12345678901234567890, "t": "\\u00e9"}'
    value = message("insert", new={"id": 9007199254740993, "name": "x\ny", "doc": "DOC"})
    event = read(value.decode().replace('"DOC"', doc).encode())
    assert isinstance(event, RowEvent)
    assert event.new == {"id": b"9007199254740993", "name": b"x\ny", "doc": doc.encode()}
    assert event.commit_micros == 1767323045678901


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"{",
        b"null",
        b"[" * 100_000,
        b'{"a":' * 50_000,
        b'{"format":1}x',
        b'{"format": 1, "op": "insert"}',
        b'{"format": 1, "op": NaN}',
        b"\xff\xfe",
        message("drop"),
        message("insert", format=2),
        message("insert", new=None),
        message("insert", key=None),
        message("insert", key={"name": "a"}),
        message("insert", new={"id": 1, "unheard_of": 2}),
        message("update", unset=["unheard_of"]),
        message("delete"),
        message("insert", claim_check={"path": "/etc/passwd"}),
        message("insert", schema=7),
    ],
)
def test_what_is_no_message_is_named_as_such(value: bytes) -> None:
    with pytest.raises(Malformed):
        read(value)


def test_members_are_texts() -> None:
    assert members(' {"a" : 1.0 , "b":[1, 2],"c":"x"} ') == {"a": "1.0", "b": "[1, 2]", "c": '"x"'}


def test_schema_events_bring_no_expression() -> None:
    event = {
        "format": 1, "op": "schema", "schema": "public", "table": 'od"d', "table_id": 5,
        "columns": [
            {"id": 1, "name": "id", "type": "bigint", "not_null": True, "default": None},
            {"id": 2, "name": "x", "type": "text); DROP TABLE y; --", "not_null": False,
             "default": "pg_sleep(10)"},
            {"id": 3, "name": "mood", "type": "public.mood", "not_null": False, "default": None},
        ],
        "primary_key": ["id"],
    }  # fmt: skip
    told = told_table(json.dumps(event).encode())
    assert told is not None
    assert [(c.type.name, c.default) for c in told.definition.columns] == [
        ("bigint", None),
        ("text", None),
        ("text", None),
    ]
    for wrong in (b"{}", b"[1]", b"\0", b"[" * 100_000):
        with pytest.raises(Malformed):
            told_table(wrong)


@pytest.mark.parametrize(
    ("text", "oid", "typmod", "name"),
    [
        ("integer", 23, -1, "integer"),
        ("numeric(12,2)", 1700, 786438, "numeric(12,2)"),
        ("timestamp(3) with time zone", 1184, 3, "timestamp(3) with time zone"),
        ("character varying(10)[]", 1015, 14, "character varying(10)"),
        ("int4range", 3904, -1, "int4range"),
        ("geometry(Point,4326)", 25, -1, "text"),
        ("public.mood[]", 25, -1, "text"),
    ],
)
def test_types_are_those_of_the_catalogue_or_text(
    text: str, oid: int, typmod: int, name: str
) -> None:
    found = column_type(text)
    assert (found.pg_type.oid, found.typmod) == (oid, typmod)
    assert found.name.name + found.name.modifier == name


def test_columns_are_followed_by_their_numbers() -> None:
    table = known()
    told = TopicTables({table.table_name: table}, 8)
    columns = (*table.columns[:1], ToldColumn(2, "title", "text"), ToldColumn(9, "new", "text"))
    after = told.told([ToldTable("public", "items", columns, ("id",), 77)], 16)
    (changed,) = after.tables.values()
    assert (changed.oid, after.changed) == (table.oid, (table.oid,))
    # A message of before: its name is another, and one of its columns is gone.
    event = read(message("update", new={"id": 1, "name": "a", "doc": {}}), changed)
    assert isinstance(event, RowEvent)
    rows = Transcoder(lambda *_: False, Counts())
    rows.take(PLACE, PartitionState(0), event, b"k", 0)
    (payload,) = rows.cut()._payloads
    assert parse_message(payload) == Update(table.oid, None, None, (b"1", b"a", UNSET))
    assert after.told([replace(changed, oid=0, former=())], 24).changed == ()
    again = TopicTables(after.tables, 16)
    for wrong, why in (
        (ToldColumn(4, "name", "text"), "under the name name"),
        (ToldColumn(4, "extra", "text", has_default=True), "with a default"),
    ):
        with pytest.raises(SourceError, match=why):
            again.told([ToldTable("public", "items", (*columns, wrong), ("id",), 77)], 24)
    with pytest.raises(SourceError, match="primary key"):
        again.told([ToldTable("public", "items", columns, ("title",), 77)], 24)
    with pytest.raises(SourceError, match="renamed"):
        again.told([ToldTable("public", "things", columns, ("id",), 77)], 24)


# -- what was sent again, and what is outdated ---------------------------------------------------


def taken(*events: Event | None, state: PartitionState | None = None) -> list[str]:
    counts, rows = Counts(), Transcoder(lambda *_: False, Counts())
    state = state or PartitionState(0)
    for event in events:
        assert event is not None
        rows.take(PLACE, state, event, b"k", 0)
    assert counts.messages == 0
    return [type(parse_message(payload)).__name__ for payload in rows.cut()._payloads]


def change(op: str, at: str, lane: str = "0/2 key") -> Event | None:
    parts = {"new": None} if op == "delete" else {}
    return read(message(op, **parts), position=at.encode(), lane=lane.encode())


def test_what_was_sent_again_comes_once() -> None:
    state = PartitionState(0)
    first = (change("insert", "0/10+0"), change("update", "0/10+1"), change("delete", "0/20+0"))
    assert taken(*first, state=state) == ["Insert", "Update", "Delete"]
    # Again after a crash, with what comes behind it; another lane has its own order.
    new = (change("insert", "0/30+0"), change("insert", "0/18+0", "1/2 key"))
    assert taken(*first, *new, state=state) == ["Insert", "Insert"]
    # With other lanes nobody can say what came before.
    assert taken(change("insert", "0/28+0", "2/3 key"), state=state) == ["Update"]
    assert taken(change("insert", "0/40+0", "2/3 key"), state=state) == ["Insert"]


def test_messages_of_another_source_are_refused_by_name_and_not_taken_for_repeated() -> None:
    other = Partition("shop.public.other", 0)
    offsets = Offsets({PLACE: PartitionState(0), other: PartitionState(0)})
    # A writer of an older version said nothing.
    for at, lane in enumerate((b"0/2 key", b"1/2 key one")):
        expect_source(PLACE, offsets, {"penstock.lane": lane})
        note_source(offsets.partitions[PLACE], {"penstock.lane": lane}, at)
    offsets = Offsets.from_json(offsets.to_json())
    expect_source(PLACE, offsets, {"penstock.lane": b"1/2 key one"})
    for place in (PLACE, other):
        with pytest.raises(IdentityChanged, match=r"two instead of one, .* offset 1 of") as caught:
            expect_source(place, offsets, {"penstock.lane": b"1/2 key two"})
        assert "delete the topics" in caught.value.remedy
    with pytest.raises(Malformed, match=r"header penstock.lane.* from offset 1 on"):
        expect_source(PLACE, offsets, {"penstock.lane": b"0/2 key"})
    # What is older than the header may still come in another topic.
    expect_source(other, offsets, {"penstock.lane": b"0/2 key"})


@pytest.mark.parametrize("text", [b"FFFFFFFF/FFFFFFFF+0", b"0/10+-1", b"0/10+0+-1"])
def test_positions_that_no_server_reaches_are_malformed(text: bytes) -> None:
    with pytest.raises(Malformed, match="no database writes to the position"):
        read(message("insert"), position=text)


def test_inserts_that_may_be_there_already_are_updates() -> None:
    read_row = change("read", "0/20+4294967296", "")
    assert taken(read_row, change("insert", "0/18+0"), change("insert", "0/28+0")) == [
        "Update",
        "Update",
        "Insert",
    ]
    assert taken(change("insert", "0/10+0", "")) == ["Update"]


def test_a_copied_row_behind_a_newer_change_is_left_out() -> None:
    asked = []

    def read_again(place: Partition, upto: int) -> Any:
        asked.append((place, upto))
        yield b"k", {"penstock.position": b"0/30+0"}
        yield b"other", {"penstock.position": b"0/8+0"}
        yield None, {}

    newer = NewerChanges(read_again)
    event = change("read", "0/20+4294967296", "")
    assert isinstance(event, RowEvent)
    assert newer.is_stale(PLACE, event, b"k", 10)
    assert not newer.is_stale(PLACE, event, b"other", 11)
    newer.note(PLACE, b"other", SourcePosition(0x40, 0))
    assert newer.is_stale(PLACE, event, b"other", 12)
    assert asked == [(PLACE, 10)]


def test_truncates_count_where_they_stand_in_order() -> None:
    assert keeps_order("", others=False)
    assert keeps_order("1/4 table", others=False)
    assert keeps_order("0/1 key", others=False)
    assert not keeps_order("1/4 key", others=False)
    assert not keeps_order("1/4 table", others=True)


# -- Debezium ------------------------------------------------------------------------------------


class Told:
    """Takes what messages tell of tables, as capture does."""

    def __init__(self) -> None:
        self.tables = TopicTables()
        self.format = DebeziumMessages()

    def find(self, name: TableName) -> ToldTable | None:
        if name not in self.tables.tables:
            raise Malformed("nobody has told")
        return self.tables.tables[name]

    def read(self, line: dict[str, Any], headers: Headers | None = None) -> Event | None:
        key, value = (
            None if line[part] is None else json.dumps(line[part]).encode()
            for part in ("key", "value")
        )
        try:
            return self.format.read(key, value, headers or {}, self.find)
        except Untold as told:
            self.tables = self.tables.told([told.table], 0)
            return self.format.read(key, value, headers or {}, self.find)


def lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (GOLDEN / f"{name}.jsonl").read_text().splitlines()]


def with_schemas() -> list[str]:
    found = []
    for file in sorted(GOLDEN.glob("*.jsonl")):
        first = json.loads(file.read_text().partition("\n")[0])
        if "schema" in (first["value"] or {}) and "payload" in (first["value"] or {}):
            found.append(file.stem)
    return found


def test_there_are_golden_messages_with_schemas() -> None:
    assert with_schemas()


@pytest.mark.parametrize("name", with_schemas())
def test_messages_of_a_real_debezium_are_read(name: str) -> None:
    told, rows = Told(), Transcoder(lambda *_: False, Counts())
    count = 0
    for line in lines(name):
        value = line["value"]
        if value is not None and (value["payload"] or {}).get("op") == "m":
            continue
        if line["key"] is None and value is not None:
            with pytest.raises(Malformed, match="no key"):
                told.read(line)
            continue
        event = told.read(line)
        if event is not None:
            count += 1
            rows.take(PLACE, PartitionState(0), event, b"k", 0)
    for payload in rows.cut()._payloads:
        assert isinstance(parse_message(payload), Insert | Update | Delete) or payload[:1] == b"T"
    assert count or name.startswith("logical")


def field(name: str, kind: str = "string", **more: Any) -> dict[str, Any]:
    return {"field": name, "type": kind, "optional": name != "id", **more}


def debezium_change(after: dict[str, Any], op: str = "c") -> dict[str, Any]:
    fields = [field("id", "int64"), field("name"), field("doc")]
    return {
        "key": {"schema": {"fields": fields[:1]}, "payload": {"id": after["id"]}},
        "value": {
            "schema": {"fields": [{"field": "after", "fields": fields}]},
            "payload": {
                "op": op,
                "after": after,
                "source": {"schema": "public", "table": "items", "lsn": 16},
            },
        },
    }


def test_what_is_said_of_a_table_that_is_left_out_need_not_be_readable() -> None:
    """Leaving it out is what a person does about a table without a primary key."""
    value = debezium_change({"id": 1})["value"]
    value["schema"]["fields"][0]["fields"].append(field("odd", "io.example.Odd"))
    for key in (None, b"no JSON"):
        event = DebeziumMessages().read(key, json.dumps(value).encode(), {}, lambda _: None)
        assert event is None


@pytest.mark.parametrize("lane", [b"0/1 key one", b""])
@pytest.mark.parametrize(
    "old_key", [{"id": 1}, {"schema": {"fields": [field("id", "int64")]}, "payload": {"id": 1}}]
)
def test_a_row_under_a_new_key_keeps_the_value_that_was_not_sent(
    lane: bytes, old_key: dict[str, Any]
) -> None:
    headers = {
        "__debezium.oldkey": json.dumps(old_key).encode(),
        "penstock.unset": b'["doc"]',
        **({"penstock.lane": lane, "penstock.position": b"0/10+0+2"} if lane else {}),
    }
    line = debezium_change({"id": 2, "name": "a", "doc": "__debezium_unavailable_value"})
    told, rows = Told(), Transcoder(lambda *_: False, Counts())
    event = told.read(line, headers)
    assert event is not None
    rows.take(PLACE, PartitionState(0), event, b"k", 0)
    (payload,) = rows.cut()._payloads
    change = parse_message(payload)
    assert isinstance(change, Update)
    assert (change.old, change.new) == ((b"1", None, None), (b"2", b"a", UNSET))
