"""Which columns identify the rows of a table in its events."""

from __future__ import annotations

import json

import pytest

from penstock.destination.encode.bifrost.format import BifrostFormat
from penstock.destination.encode.bifrost.options import BifrostOptions
from penstock.destination.encode.debezium.format import DebeziumFormat
from penstock.destination.encode.debezium.options import DebeziumOptions
from penstock.destination.encode.messages import EventFormat
from penstock.destination.encode.penstock_json import PenstockFormat
from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName
from penstock.model.table_schema import ReplicaIdentity
from penstock.testing.change_builder import ChangeBuilder, Column, Table, table
from penstock.transform.identity import identity_of

KEYS = {
    # By oid, as a finder may name them whatever the replica identity holds.
    table("orders").oid: ("id",)
}


def definition(
    identity: ReplicaIdentity,
    primary_key: tuple[str, ...] = (),
    *unique_keys: tuple[str, ...],
    identity_key: tuple[str, ...] = (),
    left_out: str = "",
) -> TableDefinition:
    columns = tuple(
        ColumnDefinition(n, name, TypeName("pg_catalog", "text"), published=name != left_out)
        for n, name in enumerate(("id", "number", "body"), start=1)
    )
    return TableDefinition(
        1, "public", "orders", identity, columns, primary_key, unique_keys, identity_key
    )


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (definition("d", ("id",), ("number",)), ("id",)),
        (definition("f", ("id",), ("number",)), ("id",)),
        (definition("f", (), ("number", "body"), ("id",)), ("number", "body")),
        (definition("d", ("id",), ("number",), left_out="id"), ("number",)),
        (definition("i", ("id",), ("number",), identity_key=("number",)), ("number",)),
        (definition("f"), ()),
    ],
)
def test_the_primary_key_else_a_unique_one_else_what_the_stream_says(
    given: TableDefinition, found: tuple[str, ...]
) -> None:
    assert identity_of(given) == found


def orders(identity: str, *key: str) -> Table:
    columns = [Column(name, "int8", key=name in key) for name in ("id", "number")]
    return table("orders", *columns, identity=identity)


FORMATS: list[EventFormat] = [
    PenstockFormat(KEYS),
    DebeziumFormat(DebeziumOptions(server="s", database="d", tombstones=False), {}, KEYS),
    BifrostFormat(BifrostOptions(), {}, KEYS),
]


@pytest.mark.parametrize("encoder", FORMATS, ids=lambda made: type(made).__name__)
def test_all_events_of_a_row_have_the_key_that_its_delete_can_tell(encoder: EventFormat) -> None:
    """REPLICA IDENTITY USING INDEX on another column than the primary key."""
    builder = ChangeBuilder()
    by_index = orders("i", "number")
    with builder.transaction():
        builder.insert(by_index, "1", "70")
        builder.update(by_index, "1", "70")
        builder.delete(by_index, key=[None, "70"])
    (changes,) = builder.cut().tables
    made = encoder.changes(changes).key.to_pylist()
    assert [json.loads(key) for key in made] == [{"number": 70}] * 3


@pytest.mark.parametrize("encoder", FORMATS, ids=lambda made: type(made).__name__)
def test_a_key_that_old_rows_hold_is_kept(encoder: EventFormat) -> None:
    builder = ChangeBuilder()
    full = orders("f")
    with builder.transaction():
        builder.insert(full, "1", "70")
        builder.delete(full, full=["1", "70"])
    (changes,) = builder.cut().tables
    made = encoder.changes(changes).key.to_pylist()
    assert [json.loads(key) for key in made] == [{"id": 1}] * 2
