"""Definitions: through JSON and back, and when two are the same."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.table_schema import ColumnSchema, PgType, ReplicaIdentity, TableSchema

INT4 = PgType(23, "int4")
oids = st.integers(1, 2**32 - 1)
typmods = st.integers(-1, 2**31 - 1)
types = st.recursive(
    st.builds(PgType, oids, st.text(max_size=8)),
    lambda inner: st.builds(
        PgType, oids, st.text(max_size=8), st.sampled_from(["array", "domain"]), inner, typmods
    ),
    max_leaves=3,
)
columns = st.builds(ColumnSchema, st.text(max_size=8), types, typmods, st.booleans())
identities: st.SearchStrategy[ReplicaIdentity] = st.sampled_from(["d", "n", "f", "i"])
tables = st.builds(
    TableSchema,
    oids,
    st.text(max_size=8),
    st.text(max_size=8),
    identities,
    st.lists(columns, max_size=4).map(tuple),
)


@given(tables)
def test_json_and_back(table: TableSchema) -> None:
    found = TableSchema.from_json(json.loads(json.dumps(table.to_json())))
    assert found == table
    assert hash(found) == hash(table)
    assert found.fingerprint == table.fingerprint


@given(tables, tables)
def test_a_fingerprint_stands_for_a_definition(a: TableSchema, b: TableSchema) -> None:
    assert (a.fingerprint == b.fingerprint) == (a == b)


def test_every_part_of_a_definition_counts() -> None:
    column = ColumnSchema("id", INT4, -1, True)
    table = TableSchema(1, "public", "t", "d", (column,))
    others = [
        replace(table, oid=2),
        replace(table, schema="other"),
        replace(table, name="u"),
        replace(table, replica_identity="f"),
        replace(table, columns=()),
        replace(table, columns=(replace(column, name="key"),)),
        replace(table, columns=(replace(column, typmod=7),)),
        replace(table, columns=(replace(column, is_key=False),)),
        replace(table, columns=(replace(column, type=replace(INT4, name="int8")),)),
        replace(table, columns=(replace(column, type=replace(INT4, typmod=3)),)),
        replace(table, columns=(replace(column, type=replace(INT4, inner=INT4)),)),
    ]
    assert len({other.fingerprint for other in [table, *others]}) == len(others) + 1


def test_keys_are_named_by_index() -> None:
    named = [ColumnSchema(name, INT4, is_key=name in "bd") for name in "abcd"]
    table = TableSchema(1, "public", "t", "d", tuple(named))
    assert table.key_columns == (1, 3)
    assert table.qualified_name == "public.t"
