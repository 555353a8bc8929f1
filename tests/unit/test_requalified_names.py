"""What the server wrote, with the schemas of the destination."""

from __future__ import annotations

from dataclasses import replace

from penstock.destination.postgres.targets.create_table import at_target
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
