"""Which messages pg-bifrost's format makes. That they are its own is for
tests/integration/test_bifrost_golden.py to say; here is what no golden message shows.
"""

from __future__ import annotations

import json
import pickle
from typing import Any

import pyarrow as pa

from penstock.decode.changes import TableChanges
from penstock.destination.encode.bifrost.format import BifrostFormat
from penstock.destination.encode.bifrost.options import BifrostOptions
from penstock.destination.encode.messages import Messages
from penstock.model.lsn import Frontier, format_lsn
from penstock.model.table_rows import TableRows
from penstock.testing.change_builder import UNSET, ChangeBuilder, Column, table

ITEMS = table("items", Column("id", "int8", key=True), Column("name", "text"))
TOASTED = table(
    "toasted", Column("id", "int8", key=True), Column("n", "numeric"), Column("body", "text")
)


def encoder(**options: Any) -> BifrostFormat:
    made = BifrostFormat(BifrostOptions(**options), {}, {})
    copy: BifrostFormat = pickle.loads(pickle.dumps(made))  # noqa: S301
    return copy


def one_table(builder: ChangeBuilder) -> TableChanges:
    (changes,) = builder.cut().tables
    return changes


def summary(made: Messages) -> list[tuple[int, str, Any, str]]:
    values = [json.loads(value) for value in made.value.to_pylist()]
    return [
        (row, op, key and json.loads(key), value["operation"])
        for row, op, key, value in zip(
            made.row.tolist(), made.op.to_pylist(), made.key.to_pylist(), values, strict=True
        )
    ]


def test_messages_come_in_the_order_of_their_changes() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
        builder.delete(ITEMS, key=["1", None])
        builder.insert(ITEMS, "2", None)
        builder.update(ITEMS, "3", "b", key=["2", None])
    changes = one_table(builder)
    assert summary(encoder().changes(changes)) == [
        (0, "insert", {"id": 1}, "INSERT"),
        (1, "delete", {"id": 1}, "DELETE"),
        (2, "insert", {"id": 2}, "INSERT"),
        (3, "update", {"id": 3}, "UPDATE"),
    ]
    whole = encoder().changes(changes).value.to_pylist()
    halves = [encoder().changes(changes.part(*bounds)).value for bounds in ((0, 2), (2, 4))]
    assert [text for half in halves for text in half.to_pylist()] == whole
    assert len(encoder().changes(changes.part(2, 2))) == 0


def test_a_stamp_in_full() -> None:
    builder = ChangeBuilder(first_lsn=0x16_B374_0000)
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
    changes = one_table(builder)
    (text,) = encoder().changes(changes).value.to_pylist()
    assert text == (
        '{"time":"2026-01-02T03:04:06Z","time_ms":1767323046678,"txn":"701-1767323046678901000",'
        f'"lsn":"{format_lsn(int(changes.lsn[0]))}","table":"public.items","operation":"INSERT",'
        '"columns":{"id":{"new":{"q":"false","t":"bigint","v":"1"}},'
        '"name":{"new":{"q":"true","t":"text","v":"a"}}}}'
    )


def test_columns_that_were_not_sent_are_named_and_never_null() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.update(TOASTED, "1", UNSET, UNSET)
        builder.update(TOASTED, "1", None, None)
    made = encoder().changes(one_table(builder)).value.to_pylist()
    unset, null = (json.loads(text)["columns"] for text in made)
    for column, kind in (("n", "numeric"), ("body", "text")):
        assert unset[column] == {"new": {"q": "false", "t": kind, "v": "unchanged-toast-datum"}}
        assert null[column] == {"new": {"q": "false", "t": kind, "v": "null"}}


def test_copied_rows_are_inserts() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "0", "")
    schema = one_table(builder).table
    columns = (pa.array(["1", "2"]), pa.array(["a", None]))
    made = encoder().copied(TableRows(schema, columns, 2, Frontier(0x50, 0x58)))
    assert made.op.to_pylist() == ["read", "read"]
    assert made.key.to_pylist() == ['{"id":1}', '{"id":2}']
    first, second = map(json.loads, made.value.to_pylist())
    assert (first["operation"], first["lsn"], first["txn"].split("-")[0]) == ("INSERT", "0/50", "0")
    assert second["columns"]["name"] == {"new": {"q": "false", "t": "text", "v": "null"}}


def test_logical_messages_are_not_lost() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.message("audit", b"hello")
        builder.message("audit", b"\xff")
    text, binary = (encoder().message(event) for event in builder.cut().messages)
    value = json.loads(text.value[0].as_py())
    assert (value["table"], value["operation"]) == ("", "MESSAGE")
    assert value["columns"]["prefix"]["new"]["v"] == "audit"
    assert value["columns"]["content"]["new"] == {"q": "true", "t": "text", "v": "hello"}
    content = json.loads(binary.value[0].as_py())["columns"]["content"]["new"]
    assert (content["t"], content["v"]) == ("bytea", "\\xff")
