"""Definitions: through JSON and back, and by which columns rows are found."""

from __future__ import annotations

import json
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.table_definition import (
    ColumnDefinition,
    TableDefinition,
    TypeDefinition,
    TypeName,
)
from penstock.model.table_schema import ReplicaIdentity

text = st.text(max_size=5)
texts = st.lists(text, max_size=3).map(tuple)
type_names = st.builds(TypeName, text, text, text, st.booleans(), text)
collations = st.none() | st.tuples(text, text)
types = st.builds(
    TypeDefinition,
    text,
    text,
    st.sampled_from(["enum", "domain", "composite", "range"]),
    texts,
    st.lists(st.tuples(text, type_names), max_size=2).map(tuple),
    st.none() | type_names,
    texts,
    st.booleans(),
    st.none() | text,
    collations,
    text,
)
columns = st.builds(
    ColumnDefinition,
    attnum=st.integers(1, 1600),
    name=text,
    type=type_names,
    not_null=st.booleans(),
    default=st.none() | text,
    identity=st.sampled_from(["", "a", "d"]),
    sequence=st.none() | text,
    generated=st.none() | text,
    stored=st.booleans(),
    collation=collations,
    published=st.booleans(),
)
tables = st.builds(
    TableDefinition,
    oid=st.integers(1, 2**32 - 1),
    schema=text,
    name=text,
    replica_identity=st.sampled_from(["d", "n", "f", "i"]),
    columns=st.lists(columns, max_size=3).map(tuple),
    primary_key=texts,
    unique_keys=st.lists(texts, max_size=2).map(tuple),
    identity_key=texts,
    types=st.lists(types, max_size=2).map(tuple),
)


@given(tables)
def test_json_and_back(table: TableDefinition) -> None:
    assert TableDefinition.from_json(json.loads(json.dumps(table.to_json()))) == table
    assert pickle.loads(pickle.dumps(table)) == table  # noqa: S301 (our own)


def keyed(
    identity: ReplicaIdentity,
    *,
    primary_key: str = "",
    unique: tuple[str, ...] = (),
    identity_key: str = "",
    unpublished: str = "",
) -> TableDefinition:
    """A table of the columns a to d; keys are given by their letters."""
    int4 = TypeName("pg_catalog", "integer")
    return TableDefinition(
        1,
        "public",
        "t",
        identity,
        tuple(
            ColumnDefinition(number, name, int4, published=name not in unpublished)
            for number, name in enumerate("abcd", 1)
        ),
        tuple(primary_key),
        tuple(tuple(key) for key in unique),
        tuple(identity_key),
    )


@pytest.mark.parametrize(
    ("table", "key"),
    [
        (keyed("d", primary_key="ba"), "ba"),
        (keyed("d", unique=("c",)), ""),
        (keyed("n", primary_key="a"), "a"),
        (keyed("i", primary_key="a", identity_key="cb"), "cb"),
        (keyed("f", primary_key="a", unique=("c",)), "a"),
        (keyed("f", unique=("c", "ab")), "c"),
        (keyed("f"), ""),
        (keyed("d", primary_key="ab", unpublished="b"), ""),
        (keyed("d", primary_key="ab", unpublished="c"), "ab"),
    ],
)
def test_what_old_images_carry_decides_by_what_rows_are_found(
    table: TableDefinition, key: str
) -> None:
    assert table.merge_key == tuple(key)
