"""Which messages Debezium's format makes of changes. That they are Debezium's own is for
tests/integration/test_debezium_golden.py to say; here is what no golden message shows.
"""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa
import pytest
from pydantic import ValidationError

from penstock.decode.changes import TableChanges
from penstock.destination.encode.debezium.format import NEW_KEY, OLD_KEY, UNSET, DebeziumFormat
from penstock.destination.encode.debezium.options import DebeziumOptions
from penstock.destination.encode.messages import Messages
from penstock.model.errors import DecodeError
from penstock.model.lsn import Frontier
from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName
from penstock.model.table_rows import TableRows
from penstock.testing.change_builder import UNSET as NOT_SENT
from penstock.testing.change_builder import ChangeBuilder, Column, Table, table

ITEMS = table("items", Column("id", "int8", key=True), Column("name", "text"))
FULL = table("whole", Column("id", "int4"), Column("name", "text"), identity="f")
TYPES = {"int8": "bigint", "int4": "integer", "text": "text", "numeric": "numeric"}


def _format(**options: Any) -> DebeziumFormat:
    return DebeziumFormat(DebeziumOptions(server="shop", database="db", **options), {}, {})


def _changes(builder: ChangeBuilder) -> TableChanges:
    (changes,) = builder.cut().tables
    return changes


def _definition(of: Table, *not_null: str, **defaults: str) -> TableDefinition:
    columns = tuple(
        ColumnDefinition(
            number,
            column.name,
            TypeName("pg_catalog", TYPES[column.type]),
            not_null=column.name in not_null,
            default=defaults.get(column.name),
        )
        for number, column in enumerate(of.columns, start=1)
    )
    return TableDefinition(of.oid, of.schema, of.name, "d", columns, primary_key=("id",))


def _summary(made: Messages) -> list[tuple[int, int, str, Any, str | None]]:
    return [
        (row, part, op, key and json.loads(key), value and json.loads(value)["op"])
        for row, part, op, key, value in zip(
            made.row.tolist(),
            made.part.tolist(),
            *(column.to_pylist() for column in (made.op, made.key, made.value)),
            strict=True,
        )
    ]


def _headers(made: Messages) -> dict[str, list[Any]]:
    return {
        name: [text and json.loads(text) for text in texts.to_pylist()]
        for name, texts in made.headers
    }


def _mixed() -> TableChanges:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
        builder.update(ITEMS, "1", "b")
        builder.update(ITEMS, "2", "b", key=["1", None])
        builder.delete(ITEMS, key=["2", None])
        builder.insert(ITEMS, "3", "c")
    return _changes(builder)


def test_messages_come_in_the_order_of_their_changes_and_count_their_parts() -> None:
    made = _format().changes(_mixed())
    assert _summary(made) == [
        (0, 0, "insert", {"id": 1}, "c"),
        (1, 0, "update", {"id": 1}, "u"),
        (2, 0, "delete", {"id": 1}, "d"),
        (2, 1, "tombstone", {"id": 1}, None),
        (2, 2, "insert", {"id": 2}, "c"),
        (3, 0, "delete", {"id": 2}, "d"),
        (3, 1, "tombstone", {"id": 2}, None),
        (4, 0, "insert", {"id": 3}, "c"),
    ]
    assert _headers(made) == {
        OLD_KEY: [None, None, None, None, {"id": 1}, None, None, None],
        NEW_KEY: [None, None, {"id": 2}, {"id": 2}, None, None, None, None],
    }


def test_without_tombstones() -> None:
    made = _format(tombstones=False).changes(_mixed())
    assert [(row, part, op) for row, part, op, _, _ in _summary(made)] == [
        (0, 0, "insert"),
        (1, 0, "update"),
        (2, 0, "delete"),
        (2, 1, "insert"),
        (3, 0, "delete"),
        (4, 0, "insert"),
    ]


def test_deletes_alone() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.delete(ITEMS, key=["2", None])
    made = _format().changes(_changes(builder))
    assert [op for _, _, op, _, _ in _summary(made)] == ["delete", "tombstone"]


def test_no_changes_make_no_messages() -> None:
    made = _format().changes(_mixed().part(2, 2))
    assert len(made) == 0
    assert (len(made.key), len(made.value), len(made.op)) == (0, 0, 0)


def test_a_part_of_the_changes_makes_its_part_of_the_messages() -> None:
    changes, encoder = _mixed(), _format()
    whole = encoder.changes(changes).value.to_pylist()
    halves = [encoder.changes(changes.part(*bounds)).value for bounds in ((0, 2), (2, 5))]
    assert [text for half in halves for text in half.to_pylist()] == whole


def test_an_insert_in_full() -> None:
    builder = ChangeBuilder(first_lsn=0x16_B374_0000)
    with builder.transaction():
        builder.insert(ITEMS, "7", 'a "b"')
    changes = _changes(builder)
    made = _format(transaction=True).changes(changes)
    commit_lsn, lsn = int(changes.commit_lsn[0]), int(changes.lsn[0])
    assert made.key.to_pylist() == ['{"id":7}']
    (value,) = map(json.loads, made.value.to_pylist())
    version = value["source"].pop("version")
    assert version
    assert value == {
        "before": None,
        "after": {"id": 7, "name": 'a "b"'},
        "source": {
            "connector": "postgresql",
            "name": "shop",
            "ts_ms": 1767323046678,
            "snapshot": "false",
            "db": "db",
            "sequence": f'["{commit_lsn}","{lsn}"]',
            "ts_us": 1767323046678901,
            "ts_ns": 1767323046678901000,
            "schema": "public",
            "table": "items",
            "txId": 701,
            "lsn": lsn,
            "xmin": None,
            "origin": None,
            "origin_lsn": None,
        },
        "transaction": {
            "id": f"701:{commit_lsn}",
            "total_order": 1,
            "data_collection_order": 1,
        },
        "op": "c",
        "ts_ms": 1767323046678,
        "ts_us": 1767323046678901,
        "ts_ns": 1767323046678901000,
    }


def test_stamps_of_several_transactions() -> None:
    builder = ChangeBuilder()
    for number in range(3):
        with builder.transaction():
            builder.insert(ITEMS, str(number), "x")
            builder.insert(ITEMS, str(10 + number), "y")
    changes = _changes(builder)
    values = [json.loads(text) for text in _format().changes(changes).value.to_pylist()]
    assert [value["source"]["txId"] for value in values] == changes.xid.tolist()
    assert [value["source"]["lsn"] for value in values] == changes.lsn.tolist()
    assert [value["ts_us"] for value in values] == changes.commit_micros.tolist()


def test_columns_that_were_not_sent_have_the_placeholder_and_are_named() -> None:
    wide = table(
        "wide",
        Column("id", "int8", key=True),
        Column("body", "text"),
        Column("amount", "numeric"),
    )
    builder = ChangeBuilder()
    with builder.transaction():
        builder.update(wide, "1", NOT_SENT, NOT_SENT)
        builder.update(wide, "1", "x", "1.5")
        builder.update(wide, "1", NOT_SENT, None)
    made = _format(unavailable="<gone>").changes(_changes(builder))
    rows = [json.loads(text)["after"] for text in made.value.to_pylist()]
    assert [row["body"] for row in rows] == ["<gone>", "x", "<gone>"]
    assert [row["amount"] for row in rows] == [None, {"scale": 1, "value": "Dw=="}, None]
    assert _headers(made) == {UNSET: [["body", "amount"], None, ["body"]]}


def test_what_an_old_row_holds_is_not_unset() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.update(FULL, "1", NOT_SENT, full=["1", "long"])
    made = _format().changes(_changes(builder))
    (value,) = map(json.loads, made.value.to_pylist())
    assert value["before"] == value["after"] == {"id": 1, "name": "long"}
    assert not made.headers


def test_a_key_of_the_caller() -> None:
    """REPLICA IDENTITY FULL names no key; who knows the table does."""
    builder = ChangeBuilder()
    with builder.transaction():
        builder.update(FULL, "1", "b", full=["1", "a"])
        builder.update(FULL, "2", "b", full=["1", "b"])
        builder.delete(FULL, full=["2", "b"])
    changes = _changes(builder)
    assert _format().changes(changes).key.null_count == 4
    options = DebeziumOptions(server="shop", database="db")
    made = DebeziumFormat(options, {}, {FULL.oid: ("id",)}).changes(changes)
    assert [(op, key) for _, _, op, key, _ in _summary(made)] == [
        ("update", {"id": 1}),
        ("delete", {"id": 1}),
        ("tombstone", {"id": 1}),
        ("insert", {"id": 2}),
        ("delete", {"id": 2}),
        ("tombstone", {"id": 2}),
    ]


def test_a_key_that_old_rows_do_not_hold_is_none() -> None:
    by_index = table(
        "by_index", Column("id", "int8"), Column("code", "text", key=True), identity="i"
    )
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(by_index, "1", "a")
        builder.delete(by_index, key=[None, "a"])
    options = DebeziumOptions(server="shop", database="db")
    made = DebeziumFormat(options, {}, {by_index.oid: ("id",)}).changes(_changes(builder))
    assert {key["code"] for _, _, _, key, _ in _summary(made)} == {"a"}


def test_columns_that_may_not_be_null_have_a_value_in_old_rows() -> None:
    wide = table(
        "wide",
        Column("id", "int8", key=True),
        Column("name", "text"),
        Column("amount", "numeric", typmod=((10 << 16) | 2) + 4),
        Column("note", "text"),
    )
    builder = ChangeBuilder()
    with builder.transaction():
        builder.delete(wide, key=["1", None, None, None])
    definition = _definition(wide, "id", "name", "amount", amount="1")
    options = DebeziumOptions(server="shop", database="db", decimals="string")
    made = DebeziumFormat(options, {wide.oid: definition}, {}).changes(_changes(builder))
    before = json.loads(made.value[0].as_py())["before"]
    assert before == {"id": 1, "name": "", "amount": "1.00", "note": None}


def test_schemas_know_what_the_definition_says() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", None)
    changes = _changes(builder)
    options = DebeziumOptions(server="shop", database="db", schemas=True)
    definition = _definition(ITEMS, "id", id="nextval('items_id_seq'::regclass)", name="'x'::text")
    made = DebeziumFormat(options, {ITEMS.oid: definition}, {}).changes(changes)
    key, value = (json.loads(column[0].as_py()) for column in (made.key, made.value))
    assert key == {
        "schema": {
            "type": "struct",
            "fields": [{"type": "int64", "optional": False, "default": 0, "field": "id"}],
            "optional": False,
            "name": "shop.public.items.Key",
        },
        "payload": {"id": 1},
    }
    after = value["schema"]["fields"][1]
    assert after["fields"][1] == {
        "type": "string",
        "optional": True,
        "default": "x",
        "field": "name",
    }
    assert value["payload"]["after"] == {"id": 1, "name": None}
    bare = json.loads(_format(schemas=True).changes(changes).value[0].as_py())
    fields = bare["schema"]["fields"][1]["fields"]
    assert [(f["field"], f["optional"], "default" in f) for f in fields] == [
        ("id", False, False),
        ("name", True, False),
    ]


def test_copied_rows() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
    items = _changes(builder).table
    rows = TableRows(items, (pa.array(["1", "2"]), pa.array(["x", None])), 2, Frontier(80, 88))
    made = _format(transaction=True).copied(rows)
    assert _summary(made) == [(0, 0, "read", {"id": 1}, "r"), (1, 0, "read", {"id": 2}, "r")]
    value = json.loads(made.value[1].as_py())
    assert value["after"] == {"id": 2, "name": None}
    assert value["transaction"] is None
    source = value["source"]
    assert (source["snapshot"], source["lsn"], source["txId"]) == ("true", 80, None)
    assert source["sequence"] == '[null,"80"]'


def test_a_table_without_columns() -> None:
    nothing = table("nothing")
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(nothing)
        builder.insert(nothing)
    made = _format().changes(_changes(builder))
    assert [json.loads(text)["after"] for text in made.value.to_pylist()] == [{}, {}]
    assert made.key.null_count == 2


def test_truncates_and_messages() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.truncate(ITEMS, FULL)
        builder.message("audit", b"\x00\xff")
    builder.message("metrics", b"", transactional=False)
    changes, encoder = builder.cut(), _format(transaction=True)
    emptied = encoder.truncate(changes.truncates[0])
    assert [_summary(made) for made in emptied] == [[(0, 0, "truncate", None, "t")]] * 2
    tables = [json.loads(made.value[0].as_py())["source"]["table"] for made in emptied]
    assert tables == ["items", "whole"]
    audit, metrics = (encoder.message(event) for event in changes.messages)
    assert audit.key.to_pylist() == ['{"prefix":"audit"}']
    value = json.loads(audit.value[0].as_py())
    assert value["message"] == {"prefix": "audit", "content": "AP8="}
    assert value["transaction"]["total_order"] == 2
    outside = json.loads(metrics.value[0].as_py())
    assert (outside["source"]["txId"], outside["transaction"]) == (None, None)


def test_it_travels_to_executors() -> None:
    changes = _mixed()
    encoder = DebeziumFormat(
        DebeziumOptions(server="shop", database="db"), {ITEMS.oid: _definition(ITEMS, "id")}, {}
    )
    first = encoder.changes(changes).value
    again = pickle.loads(pickle.dumps(encoder)).changes(changes).value  # noqa: S301
    assert again == first


def test_a_malformed_value_names_its_place() -> None:
    days = table("days", Column("id", "int8", key=True), Column("list", "_int4"))
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(days, "1", "{1,")
    with pytest.raises(DecodeError, match=r"table public\.days, column list"):
        _format().changes(_changes(builder))


def test_unknown_options_are_refused() -> None:
    with pytest.raises(ValidationError, match="decimal"):
        DebeziumOptions.model_validate({"server": "s", "database": "d", "decimal": "precise"})
