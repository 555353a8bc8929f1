"""How a table or a type at the destination differs from what the source's rows need. No I/O."""

from __future__ import annotations

from collections.abc import Sequence

from psycopg import sql

from penstock.destination.postgres.targets.create_table import create_key_index, shown_type
from penstock.model.table_definition import (
    ColumnDefinition,
    TableDefinition,
    TypeDefinition,
    TypeName,
)
from penstock.model.type_change import has_labels

# Text of the one is text of the other, with the same meaning and nothing lost.
_WIDER = {
    "smallint": ("integer", "bigint"),
    "integer": ("bigint",),
    "character varying": ("text",),
    "numeric": ("numeric",),
}


def table_differences(
    wanted: TableDefinition, found: TableDefinition, unique: Sequence[frozenset[str]]
) -> list[str]:
    """Why rows of the one cannot be held by the other, each with what to do."""
    table = sql.Identifier(found.schema, found.name).as_string(None)
    there = {column.name: column for column in found.columns}
    differences: list[str] = []
    for column in wanted.columns:
        target = there.pop(column.name, None)
        if target is not None:
            differences += _column_differences(column, target, wanted, table)
        elif column.published:
            added = f"ADD COLUMN {_identifier(column.name)} {shown_type(column.type)}"
            differences.append(
                f"column {column.name} is missing at the destination; ALTER TABLE {table} {added}"
            )
    differences += [
        f"column {extra.name} exists only at the destination, and is NOT NULL without a default;"
        f" ALTER TABLE {table} ALTER COLUMN {_identifier(extra.name)} DROP NOT NULL"
        for extra in there.values()
        if extra.not_null
        and extra.default is None
        and extra.generated is None
        and not extra.identity
    ]
    if wanted.merge_key and frozenset(wanted.merge_key) not in unique:
        differences.append(
            f"no unique index on ({', '.join(wanted.merge_key)}), by which rows are found;"
            f" {create_key_index(wanted).as_string(None)}"
        )
    return differences


def _column_differences(
    column: ColumnDefinition, target: ColumnDefinition, wanted: TableDefinition, table: str
) -> list[str]:
    name = _identifier(column.name)
    kind = shown_type(column.type)
    differences = []
    if not _holds(target.type, column.type):
        differences.append(
            f"column {column.name} is {shown_type(target.type)} at the destination and"
            f" {kind} at the source; ALTER TABLE {table} ALTER COLUMN {name} TYPE {kind}"
        )
    if (column.generated is None) != (target.generated is None):
        where = "destination" if column.generated is None else "source"
        differences.append(
            f"column {column.name} is generated only at the {where}; make it the same on both sides"
        )
    if target.identity == "a" and column.name not in wanted.merge_key:
        differences.append(
            f"column {column.name} is GENERATED ALWAYS AS IDENTITY at the destination, which"
            f" refuses the source's values; ALTER TABLE {table} ALTER COLUMN {name} SET GENERATED"
            " BY DEFAULT"
        )
    return differences


def _holds(target: TypeName, source: TypeName) -> bool:
    """Whether a column of the target's type takes every text of the source's without a loss."""
    if target == source:
        return True
    return (
        not source.is_user_defined
        and not target.is_user_defined
        and target.is_array == source.is_array
        and not target.modifier
        and target.name in _WIDER.get(source.name, ())
    )


def type_differences(wanted: TypeDefinition, found: TypeDefinition) -> list[str]:
    compared = (
        ("kind", wanted.kind, found.kind),
        ("labels", *_labels(wanted, found)),
        ("attributes", _attributes(wanted), _attributes(found)),
        ("base", wanted.base and shown_type(wanted.base), found.base and shown_type(found.base)),
    )
    return [
        f"the type {wanted.qualified_name} differs in its {what}: ({there}) at the destination,"
        f" ({here}) at the source; make them the same, or map its schema to another"
        for what, here, there in compared
        if here != there
    ]


def _labels(wanted: TypeDefinition, found: TypeDefinition) -> tuple[str, str]:
    """An enum may have more than are needed."""
    needed = ", ".join(wanted.labels)
    return needed, needed if has_labels(found.labels, wanted.labels) else ", ".join(found.labels)


def _attributes(kind: TypeDefinition) -> str:
    return ", ".join(f"{_identifier(name)} {shown_type(used)}" for name, used in kind.attributes)


def _identifier(name: str) -> str:
    return sql.Identifier(name).as_string(None)
