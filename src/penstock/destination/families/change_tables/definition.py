"""What a change table looks like: the source's columns, those that it had once, and our own. Pure.

A change table is a table without a key to the member that holds it, so it is made, changed and
filled as any other. What a column held stays, also where the source drops it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from penstock.destination.families.target import Target
from penstock.model.errors import TableRefused
from penstock.model.plain_type import plain_type
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import ColumnDefinition, TableDefinition, TypeName

OWN = {
    "_op": "text",
    "_commit_lsn": "int8",
    "_ordinal": "int8",
    "_commit_time": "timestamptz",
    "_xid": "int8",
    "_unset": "text[]",
    "_old": "json",
}
"""What a change table has beside the source's columns, and the types of these."""

_FIRST_OWN = 1701
"""The number of the first of them: a table has at most 1,600 columns."""


def change_table(
    table: TableDefinition, there: Target | None = None
) -> tuple[TableDefinition, Target]:
    """The change table of a table; ``there`` is what it is so far, whose columns it keeps.

    Raises TableRefused where the table has columns of our names.
    """
    columns = _source_columns(table)
    names = {column.name for column in columns}
    left = [] if there is None else [n for n in there.columns if n not in names and n not in OWN]
    kept = [_kept(there, name, number) for number, name in enumerate(sorted(left), 1) if there]
    return _made(table, columns, kept)


def is_change_table(there: Target) -> bool:
    return OWN.keys() <= set(there.columns)


def changed(change: TableChange, there: Target) -> tuple[TableChange, Target]:
    """What a schema change of the source means for its change table, and what that becomes.

    Columns that are dropped stay. Where another one takes the name of such a column, the older one
    gets ``_`` at its end, unless both are of one type: then they are one.
    """
    assert change.before is not None  # noqa: S101 (only tables that are followed are changed)
    assert change.after is not None  # noqa: S101
    before, after = _source_columns(change.before), _source_columns(change.after)
    numbers = {column.attnum for column in after}
    known = {column.name for column in before}
    left = sorted(n for n in there.columns if n not in known and n not in OWN)
    old = [_kept(there, name, number) for number, name in enumerate(left, 1)]
    gone = [column for column in before if column.attnum not in numbers]
    taken = {column.name: column for column in after}
    kept: list[ColumnDefinition] = []
    for place, column in enumerate(old):
        again = taken.get(column.name)
        if again is not None and _plain(change.after, again) == _plain(change.after, column):
            old[place] = replace(column, attnum=again.attnum)
        else:
            kept.append(column)
    kept += gone
    names = {*taken, *OWN, *(column.name for column in kept)}
    for place, column in enumerate(kept):
        if column.name in taken:
            kept[place] = replace(column, name=_free_name(column.name, names))
            names.add(kept[place].name)
    definition, target = _made(change.after, after, sorted(kept, key=lambda c: c.name))
    former, _ = _made(change.before, before, old)
    return TableChange(former, definition), target


def fitted(table: TableDefinition, there: Target) -> tuple[TableChange, Target]:
    """The same where nobody knows what happened to the source: columns go by their names."""
    definition, target = change_table(table, there)
    columns = {column.name: column for column in definition.columns}
    types = dict(zip(there.columns, there.types, strict=True))
    former = replace(
        definition,
        schema=there.schema,
        name=there.name,
        columns=tuple(
            replace(columns[name], type=_type_name(kind)) for name, kind in types.items()
        ),
    )
    return TableChange(former, definition), target


def _source_columns(table: TableDefinition) -> list[ColumnDefinition]:
    found = [column for column in table.columns if column.is_delivered]
    taken = sorted(column.name for column in found if column.name.casefold() in OWN)
    if taken:
        raise TableRefused(
            f"table {table.qualified_name} has columns that a change table needs for itself: "
            f"{', '.join(taken)}",
            remedy="exclude the table, rename the columns, or use destination.mode: merge",
            table=table.oid,
        )
    # What was written before a column came stays without it.
    return [replace(column, not_null=False, missing=None) for column in found]


def _made(
    table: TableDefinition, columns: Sequence[ColumnDefinition], kept: Sequence[ColumnDefinition]
) -> tuple[TableDefinition, Target]:
    own = [
        ColumnDefinition(_FIRST_OWN + number, name, _type_name(kind))
        for number, (name, kind) in enumerate(OWN.items())
    ]
    definition = replace(table.without_keys(), columns=(*columns, *kept, *own))
    return definition, replace(Target.of(definition), source=Target.of(table))


def _kept(there: Target, name: str, number: int) -> ColumnDefinition:
    """A column that the source has no longer. Its number is nobody else's."""
    return ColumnDefinition(-number, name, _type_name(there.types[there.columns.index(name)]))


def _plain(table: TableDefinition, column: ColumnDefinition) -> str:
    return plain_type(column, table.types)


def _type_name(plain: str) -> TypeName:
    """A type that comes down to this one."""
    scalar = plain.removesuffix("[]")
    name, bracket, modifier = scalar.partition("(")
    return TypeName("pg_catalog", name, bracket + modifier, is_array=scalar != plain)


def _free_name(name: str, taken: Collection[str]) -> str:
    while name in taken:
        name += "_"
    return name
