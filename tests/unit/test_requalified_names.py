"""What the server wrote, with the schemas of the destination."""

from __future__ import annotations

from dataclasses import replace

import pytest

from penstock.config.table_patterns import split_name
from penstock.destination.postgres.targets.create_table import at_target, with_free_sequences
from penstock.destination.postgres.targets.table_names import TableNames
from penstock.model.table_definition import (
    ColumnDefinition,
    ConstraintDefinition,
    TableDefinition,
    TypeDefinition,
    TypeName,
)

MOOD = TypeName("public", "mood")
TABLE = TableDefinition(
    oid=1,
    schema="public",
    name="items",
    replica_identity="d",
    columns=(ColumnDefinition(1, "in public.mood", MOOD),),
    types=(TypeDefinition("public", "mood", "enum", labels=("calm",)),),
)


def checked(check: str) -> str:
    table = replace(TABLE, constraints=(ConstraintDefinition("c", "check", check),))
    made = at_target(table, TableNames("warehouse"), {})
    return made.constraints[0].definition


def test_a_name_inside_of_a_name_is_none() -> None:
    """Whoever names a column could end the quotes by it, behind the back of who read the text."""
    check = """CHECK (("in public.mood" <> 'public.mood'::{mood}))"""
    assert checked(check.format(mood="public.mood")) == check.format(mood='"warehouse"."mood"')
    check = '''CHECK ((""" public.mood" IS NULL))'''
    assert checked(check) == check


@pytest.mark.parametrize("letter", ["a", "я", "表", "😀"])
def test_a_sequence_whose_name_is_taken_gets_one_that_the_server_does_not_cut(letter: str) -> None:
    name = letter * (63 // len(letter.encode()))
    column = ColumnDefinition(
        1, "id", TypeName("pg_catalog", "integer"), sequence=f'public."{name}"', default=""
    )
    taken = {("public", name)}
    table = replace(TABLE, columns=(column, replace(column, attnum=2)))
    found = [split_name(c.sequence or "") for c in with_free_sequences(table, taken).columns]
    assert len(taken) == 3
    assert taken > set(found)
    assert max(len(found_name.encode()) for _, found_name in found) <= 63
