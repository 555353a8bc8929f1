"""Any two definitions of a table: the steps between them lead from the one to the other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.schema_change import Difference, TableChange
from penstock.model.table_definition import (
    ColumnDefinition,
    ConstraintDefinition,
    IndexDefinition,
    TableDefinition,
    TypeDefinition,
    TypeName,
)

INT, BIGINT, TEXT = (TypeName("pg_catalog", name) for name in ("integer", "bigint", "text"))


@dataclass(frozen=True)
class Model:
    """A table as a server has it: what refers to columns and types does so by number."""

    name: str
    columns: Mapping[int, tuple[str, ColumnDefinition]]
    types: Mapping[int, tuple[str, tuple[str, ...]]]
    indexes: Mapping[int, tuple[str, str]]
    constraints: Mapping[int, tuple[str, str]]
    key: tuple[int, ...]
    identity: Any

    def definition(self) -> TableDefinition:
        names = {number: name for number, (name, _) in self.columns.items()}
        used = {kind: f"public.{name}" for kind, (name, _) in self.types.items()}
        columns = []
        for number, (name, column) in sorted(self.columns.items()):
            made = replace(column, attnum=number, name=name)
            if number + 200 in self.types:
                kind = self.types[number + 200][0]
                made = replace(made, type=TypeName("public", kind))
                if made.default is not None:
                    made = replace(made, default=f"'x'::{used[number + 200]}")
            if number > 1 and 1 in names and made.generated is not None:
                made = replace(made, generated=f"({names[1]} || 'a'::text)")
            columns.append(made)
        return TableDefinition(
            oid=10,
            schema="public",
            name=self.name,
            replica_identity=self.identity,
            columns=tuple(columns),
            primary_key=tuple(names[number] for number in self.key if number in names),
            types=tuple(
                TypeDefinition("public", name, "enum", labels, oid=oid)
                for oid, (name, labels) in self.types.items()
            ),
            # The oid decides which column it is about, for as long as there is one.
            indexes=tuple(
                IndexDefinition(name, False, f"USING btree ({names[oid % 4]}){options}", oid=oid)
                for oid, (name, options) in self.indexes.items()
                if oid % 4 in names
            ),
            constraints=tuple(
                ConstraintDefinition(
                    name, "check", f"CHECK (({names[oid % 4]} > 0)){flag}", oid=oid
                )
                for oid, (name, flag) in self.constraints.items()
                if oid % 4 in names
            ),
        )


def named(numbers: range, rest: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[int, Any]]:
    """Some of the numbers, each with a name of its own and something else."""

    def pair(chosen: list[int]) -> st.SearchStrategy[dict[int, Any]]:
        names = st.permutations(["a", "b", "c", "d", "e", "f"])
        values = st.lists(rest, min_size=len(chosen), max_size=len(chosen))
        return st.tuples(names, values).map(
            lambda drawn: dict(zip(chosen, zip(*drawn, strict=False), strict=True))
        )

    return st.lists(st.sampled_from(numbers), unique=True, max_size=4).flatmap(pair)


columns = st.builds(
    ColumnDefinition,
    attnum=st.just(0),
    name=st.just(""),
    type=st.sampled_from([INT, BIGINT, TEXT]),
    not_null=st.booleans(),
    default=st.sampled_from([None, "7", "now()"]),
    identity=st.sampled_from(["", "a", "d"]),
    sequence=st.sampled_from([None, "public.q"]),
    generated=st.sampled_from([None, "1"]),
    collation=st.sampled_from([None, ("pg_catalog", "C")]),
    published=st.booleans(),
)
models = st.builds(
    Model,
    name=st.sampled_from(["t", "u"]),
    columns=named(range(4), columns),
    types=named(range(200, 204), st.sampled_from([(), ("x",), ("x", "y"), ("y",)])),
    indexes=named(range(100, 108), st.sampled_from(["", " WITH (fillfactor='70')"])),
    constraints=named(range(100, 108), st.sampled_from(["", " NOT VALID"])),
    key=st.lists(st.integers(0, 3), unique=True).map(tuple),
    identity=st.sampled_from("dfn"),
)


def replaced(text: str, columns: dict[str, str], types: dict[str, str]) -> str:
    def name(match: re.Match[str]) -> str:
        if match[1]:
            return match[1] + types.get(match[2], match[2])
        return columns.get(match[2], match[2])

    return re.sub(r"(public\.)?(?<!')\b([a-f])\b(?!')", name, text)


def applied(before: TableDefinition, steps: tuple[Difference, ...]) -> TableDefinition:
    """The table after the steps; new names reach whatever names the thing, as in a server."""
    table = before
    names = {
        step.before.name: step.after.name
        for step in steps
        if isinstance(step.before, ColumnDefinition) and isinstance(step.after, ColumnDefinition)
    }
    types = {
        step.before.name: step.after.name
        for step in steps
        if isinstance(step.before, TypeDefinition) and isinstance(step.after, TypeDefinition)
    }
    for step in steps:
        if step.after is None:
            table = without(table, step.before)
    table = replace(
        table,
        columns=tuple(
            replace(
                column,
                name=names.get(column.name, column.name),
                type=replace(column.type, name=types.get(column.type.name, column.type.name)),
                default=column.default and replaced(column.default, {}, types),
                generated=column.generated and replaced(column.generated, names, {}),
            )
            for column in table.columns
        ),
        primary_key=tuple(names.get(name, name) for name in table.primary_key),
        indexes=tuple(
            replace(index, definition=replaced(index.definition, names, {}))
            for index in table.indexes
        ),
        constraints=tuple(
            replace(constraint, definition=replaced(constraint.definition, names, {}))
            for constraint in table.constraints
        ),
    )
    for step in steps:
        table = changed(table, step)
    return table


def without(table: TableDefinition, gone: Any) -> TableDefinition:
    def rest(items: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(item for item in items if item is not gone)

    return replace(
        table,
        columns=rest(table.columns),
        types=rest(table.types),
        indexes=rest(table.indexes),
        constraints=rest(table.constraints),
    )


COLUMN_FIELDS = {
    "column_type": ("type", "collation"),
    "column_default": ("default",),
    "column_nullability": ("not_null",),
    "column_identity": ("identity", "sequence", "default"),
    "column_generated": ("generated", "stored", "published"),
    "column_published": ("published",),
    "rename_column": ("name",),
}
TABLE_FIELDS = {
    "rename_table": ("schema", "name"),
    "primary_key": ("primary_key",),
    "replica_identity": ("replica_identity", "identity_key", "unique_keys"),
}


def changed(table: TableDefinition, step: Difference) -> TableDefinition:
    after = step.after
    taken: dict[str, Any]
    if isinstance(after, TableDefinition):
        taken = {field: getattr(after, field) for field in TABLE_FIELDS[step.kind]}
        return replace(table, **taken)
    if isinstance(after, ColumnDefinition) and step.kind != "add_column":
        taken = {field: getattr(after, field) for field in COLUMN_FIELDS[step.kind]}
        return replace(
            table,
            columns=tuple(
                replace(column, **taken) if column.attnum == after.attnum else column
                for column in table.columns
            ),
        )
    group = {"add_column": "columns", "user_type": "types", "index": "indexes"}
    field = group.get(step.kind, "constraints")
    if after is None:
        return table
    others = list(getattr(table, field))
    if step.before is not None and not isinstance(step.before, ColumnDefinition):
        others = [item for item in others if item.oid != step.before.oid]
    taken = {field: (*others, after)}
    return replace(table, **taken)


def ordered(table: TableDefinition) -> TableDefinition:
    return replace(
        table,
        columns=tuple(sorted(table.columns, key=lambda column: column.attnum)),
        types=tuple(sorted(table.types, key=lambda kind: kind.name)),
        indexes=tuple(sorted(table.indexes, key=lambda index: index.name)),
        constraints=tuple(sorted(table.constraints, key=lambda constraint: constraint.name)),
    )


@given(models, models)
def test_the_steps_lead_from_one_definition_to_the_other(one: Model, other: Model) -> None:
    before, after = one.definition(), other.definition()
    steps = TableChange(before, after).differences()
    assert ordered(applied(before, steps)) == ordered(after)
    assert (not steps) == (ordered(before) == ordered(after))
    assert all(step.text and "\n" not in step.text for step in steps)
    assert not TableChange(before, before).differences()
