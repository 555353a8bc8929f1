"""The lines of docs/change_json.md."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.decode.text_bytes import text_bytes
from penstock.destination.encode.json_values import json_values
from penstock.destination.encode.ndjson import encode_changes, read_lines
from penstock.model.lsn import Frontier
from penstock.model.pg_types import builtin_type
from penstock.model.table_rows import TableRows
from penstock.model.table_schema import PgType
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, table

ITEMS = table("items", Column("id", "int8", key=True), Column("name", "text"))
WIDE = table(
    "Wide",
    Column("id", "int8", key=True),
    Column("ok", "bool"),
    Column("ratio", "float8"),
    Column("price", "numeric"),
    Column("data", "jsonb"),
    Column("tags", "_text"),
    schema="S",
)


def lines(builder: ChangeBuilder) -> list[dict[str, Any]]:
    data = bytes(text_bytes(encode_changes(builder.cut()).text))
    assert data.endswith(b"\n")
    return [json.loads(line) for line in data.split(b"\n")[:-1]]


def test_an_insert_in_full() -> None:
    builder = ChangeBuilder(first_lsn=0x16_B374_0000)
    with builder.transaction():
        builder.insert(WIDE, "9007199254740993", "t", "1.5e+300", "1.50", '{"a": [1]}', '{a,"b c"}')
    changes = builder.cut()
    version = changes.tables[0].table.fingerprint
    assert bytes(text_bytes(encode_changes(changes).text)).decode() == (
        f'{{"format":1,"op":"insert","schema":"S","table":"Wide","schema_version":"{version}",'
        '"position":{"commit_lsn":"16/B3741000","ordinal":0},"lsn":"16/B3740060","xid":701,'
        '"commit_time":"2026-01-02T03:04:06.678901Z","key":{"id":9007199254740993},"old":null,'
        '"new":{"id":9007199254740993,"ok":true,"ratio":1.5e+300,"price":"1.50",'
        '"data":{"a": [1]},"tags":"{a,\\"b c\\"}"},"unset":[]}\n'
    )


def test_changes_of_all_tables_in_commit_order() -> None:
    builder = ChangeBuilder()
    notes = table("notes", Column("id", "int8", key=True))
    for _ in range(3):
        with builder.transaction():
            builder.insert(ITEMS, "1", "a")
            builder.insert(notes, "1")
            builder.message("m", b"x")
            builder.truncate(ITEMS)
            builder.delete(notes, key=["1"])
    found = lines(builder)
    assert [line["op"] for line in found] == [
        "insert",
        "insert",
        "message",
        "truncate",
        "delete",
    ] * 3
    assert [line["position"]["ordinal"] for line in found] == [0, 1, 2, 3, 4] * 3
    assert [line["xid"] for line in found] == [701] * 5 + [702] * 5 + [703] * 5


def test_unset_columns_are_left_out_and_named() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.update(WIDE, "1", UNSET, None, UNSET, UNSET, UNSET)
        builder.update(WIDE, "1", UNSET, UNSET, UNSET, UNSET, UNSET)
        builder.update(WIDE, "1", "f", None, None, None, None)
    found = lines(builder)
    assert [line["unset"] for line in found] == [
        ["ok", "price", "data", "tags"],
        ["ok", "ratio", "price", "data", "tags"],
        [],
    ]
    assert found[0]["new"] == {"id": 1, "ratio": None}
    assert found[1]["new"] == {"id": 1}
    assert found[1]["old"] is None


def test_a_row_of_which_nothing_was_sent() -> None:
    only = table("only", Column("body", "text"))
    builder = ChangeBuilder()
    with builder.transaction():
        builder.update(only, UNSET)
        builder.update(only, "x")
    assert [(line["new"], line["unset"]) for line in lines(builder)] == [
        ({}, ["body"]),
        ({"body": "x"}, []),
    ]


def test_the_key_is_the_identity_after_the_change() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.update(ITEMS, "2", "a", key=["1", None])
        builder.delete(ITEMS, key=["2", None])
    moved, gone = lines(builder)
    assert (moved["key"], moved["old"]) == ({"id": 2}, {"id": 1})
    assert (gone["key"], gone["old"], gone["new"]) == ({"id": 2}, {"id": 2}, None)


def test_a_toasted_key_comes_from_the_old_identity() -> None:
    builder = ChangeBuilder()
    named = table("named", Column("name", "text", key=True), Column("n", "int4"))
    with builder.transaction():
        builder.update(named, UNSET, "1", key=["long", None])
    (line,) = lines(builder)
    assert line["key"] == {"name": "long"}
    assert line["new"] == {"name": "long", "n": 1}
    assert line["unset"] == []


def test_without_a_key_the_key_is_null() -> None:
    builder = ChangeBuilder()
    full = table("full", Column("a", "int4"), identity="f")
    with builder.transaction():
        builder.update(full, "2", full=["1"])
        builder.insert(table("bare", identity="n"))
    assert [(line["key"], line["old"]) for line in lines(builder)] == [
        (None, {"a": 1}),
        (None, None),
    ]


def test_truncate_names_its_tables_and_options() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.truncate(ITEMS, WIDE, cascade=True)
    (line,) = lines(builder)
    assert [(t["schema"], t["table"]) for t in line["tables"]] == [
        ("public", "items"),
        ("S", "Wide"),
    ]
    assert (line["cascade"], line["restart_identity"]) == (True, False)


def test_messages_that_are_not_text_are_base64() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.message("p", b"\x00ok")
        builder.message("p", b"\xff\x00")
    builder.message("q", b"", transactional=False)
    text, binary, loose = lines(builder)
    assert (text["content"], text["encoding"]) == ("\x00ok", "utf-8")
    assert (binary["content"], binary["encoding"]) == ("/wA=", "base64")
    assert (loose["transactional"], loose["xid"], loose["prefix"]) == (False, None, "q")


def test_copied_rows() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
    items = builder.cut().tables[0].table
    columns = (pa.array(["1", "2"]), pa.array(["x", None]))
    rows = TableRows(items, columns, 2, Frontier(0x50, 0x58))
    found = [json.loads(line) for line in read_lines(rows).text.to_pylist()]
    assert [line["new"] for line in found] == [{"id": 1, "name": "x"}, {"id": 2, "name": None}]
    assert {line["op"] for line in found} == {"read"}
    assert found[0]["position"] == {"commit_lsn": "0/50", "ordinal": 2**32}
    assert [found[0][name] for name in ("lsn", "xid", "commit_time", "old")] == [None] * 4


def test_copied_rows_of_a_table_without_columns() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(table("nothing"))
    nothing = builder.cut().tables[0].table
    lines = read_lines(TableRows(nothing, (), 3, Frontier(0x50, 0x58))).text.to_pylist()
    assert [json.loads(line)["new"] for line in lines] == [{}, {}, {}]


def _type(name: str) -> PgType:
    return next(t for oid in range(16, 7000) if (t := builtin_type(oid)) and t.name == name)


@pytest.mark.parametrize(
    ("name", "text", "token"),
    [
        ("int8", "-9223372036854775808", "-9223372036854775808"),
        ("int2", "7", "7"),
        ("oid", "4294967295", "4294967295"),
        ("float8", "NaN", '"NaN"'),
        ("float8", "-Infinity", '"-Infinity"'),
        ("float4", "1e-45", "1e-45"),
        ("bool", "f", "false"),
        ("numeric", "0.10", '"0.10"'),
        ("numeric", "NaN", '"NaN"'),
        ("json", '{"a":\r\n "\\n"}', '{"a":   "\\n"}'),
        ("jsonb", "null", "null"),
        ("bytea", "\\x00ff", '"\\\\x00ff"'),
        ("timestamptz", "infinity", '"infinity"'),
        ("_int4", "{1,2}", '"{1,2}"'),
        ("uuid", "00000000-0000-0000-0000-000000000001", '"00000000-0000-0000-0000-000000000001"'),
    ],
)
def test_values_by_type(name: str, text: str, token: str) -> None:
    assert json_values(pa.array([text, None]), _type(name)).to_pylist() == [token, "null"]


def test_a_domain_is_written_as_its_base_type() -> None:
    domain = PgType(20_000, "positive", "domain", PgType(20_001, "small", "domain", _type("int4")))
    assert json_values(pa.array(["5"]), domain).to_pylist() == ["5"]
    enum = PgType(20_002, "bool", "enum")
    assert json_values(pa.array(["t"]), enum).to_pylist() == ['"t"']


@given(
    st.lists(st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")))
)
def test_any_text_comes_back(texts: list[str | None]) -> None:
    tokens = json_values(pa.array(texts, pa.string()), _type("text")).to_pylist()
    assert [json.loads(token) for token in tokens] == texts
    assert not any("\n" in token for token in tokens)
