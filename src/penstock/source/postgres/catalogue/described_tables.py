"""Tables and types as a catalogue document (catalogue_document.py) describes them. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

from penstock.model.table_definition import (
    ColumnDefinition,
    ConstraintDefinition,
    ConstraintKind,
    IndexDefinition,
    TableDefinition,
    TypeDefinition,
    TypeName,
    UserTypeKind,
)


@dataclass(frozen=True)
class Published:
    """Which columns publications send. ``lists`` are the numbers of the columns of tables (by oid)
    of which not all come; ``generated`` says that stored generated columns come, too.
    """

    lists: Mapping[int, frozenset[int]] = field(default_factory=dict)
    generated: bool = False

    def sends(self, column: Any) -> bool:
        if column.table in self.lists:
            return column.attnum in self.lists[column.table]
        return not column.generated or (self.generated and column.generated == "s")


class _TypeUse(NamedTuple):
    """A type as something uses it, by its oid in one catalogue."""

    oid: int
    typmod: int


class _KnownType(NamedTuple):
    """``type`` is the use as a name; ``made`` the oid of the type that would have to be created:
    the element of an array, the range of a multirange.
    """

    type: TypeName
    made: int


_KINDS: dict[str, UserTypeKind] = {"e": "enum", "d": "domain", "c": "composite", "r": "range"}

_CONSTRAINT_KINDS: dict[str, ConstraintKind] = {
    "c": "check",
    "u": "unique",
    "x": "exclude",
    "f": "foreign",
}


def tables_in(document: str, published: Published) -> dict[int, TableDefinition]:
    """The tables of a document, by oid. ``published`` says which columns the stream sends."""
    found = _read(document)
    columns, keys = _grouped(found.columns), _grouped(found.keys)
    indexes, constraints = _grouped(found.indexes), _grouped(found.constraints)
    types = _Types(found.types, found.type_names)
    return {
        row.oid: TableDefinition(
            oid=row.oid,
            schema=row.schema,
            name=row.name,
            replica_identity=row.replica_identity,
            columns=tuple(
                _column(column, types, is_published=published.sends(column))
                for column in columns.get(row.oid, [])
            ),
            types=types.needed_by(
                _TypeUse(column.type, column.typmod) for column in columns.get(row.oid, [])
            ),
            indexes=tuple(map(_index, indexes.get(row.oid, ()))),
            constraints=tuple(map(_constraint, constraints.get(row.oid, ()))),
            partitions=tuple(row.partitions),
            **_keys(keys.get(row.oid, [])),
        )
        for row in found.tables
    }


def types_in(document: str) -> dict[tuple[str, str], TypeDefinition]:
    """All types of a document, by schema and name."""
    found = _read(document)
    every = _Types(found.types, found.type_names).all()
    return {(kind.schema, kind.name): kind for kind in every}


def _read(document: str) -> Any:
    return json.loads(document, object_hook=lambda value: SimpleNamespace(**value))


class _Types:
    """The types that some uses need, down to the last one."""

    def __init__(self, rows: Sequence[Any], names: Sequence[Any]) -> None:
        self._rows = {row.oid: row for row in rows}
        self._names = {
            _TypeUse(row.oid, row.typmod): _KnownType(_type_name(row), row.made) for row in names
        }

    def name(self, oid: int, typmod: int) -> TypeName:
        return self._names[_TypeUse(oid, typmod)].type

    def needed_by(self, uses: Iterable[_TypeUse]) -> tuple[TypeDefinition, ...]:
        """The types to create for these, each after those that it is made of."""
        ordered: dict[int, TypeDefinition] = {}

        def add(use: _TypeUse) -> None:
            made = self._names[use].made
            if made in self._rows and made not in ordered:
                for part in _uses(self._rows[made]):
                    add(part)
                ordered[made] = self._definition(self._rows[made])

        for use in uses:
            add(use)
        return tuple(ordered.values())

    def all(self) -> list[TypeDefinition]:
        return [self._definition(row) for row in self._rows.values()]

    def _definition(self, row: Any) -> TypeDefinition:
        return TypeDefinition(
            schema=row.schema,
            name=row.name,
            kind=_KINDS[row.kind],
            labels=tuple(row.labels),
            attributes=tuple(
                (name, self.name(oid, typmod))
                for name, oid, typmod in zip(row.names, row.types, row.typmods, strict=True)
            ),
            base=self.name(row.base, row.typmod) if row.base else None,
            constraints=tuple(row.constraints),
            not_null=row.not_null,
            default=row.expr,
            collation=_collation(row),
            multirange=row.multirange,
            oid=row.oid,
        )


def _uses(row: Any) -> list[_TypeUse]:
    """What a type is made of."""
    uses = [_TypeUse(row.base, row.typmod)] if row.base else []
    return uses + [_TypeUse(*pair) for pair in zip(row.types, row.typmods, strict=True)]


def _type_name(row: Any) -> TypeName:
    if row.schema == "pg_catalog":
        name, bracket, rest = row.shown.partition("(")
        modifier = bracket + rest
    else:
        name, modifier = row.name, row.shown[len(row.bare) :]
    return TypeName(row.schema, name, modifier, row.is_array, row.extension)


def _column(row: Any, types: _Types, *, is_published: bool) -> ColumnDefinition:
    is_generated = bool(row.generated)
    return ColumnDefinition(
        attnum=row.attnum,
        name=row.name,
        type=types.name(row.type, row.typmod),
        not_null=row.not_null,
        default=None if is_generated else row.expr,
        identity=row.identity,
        sequence=row.sequence,
        generated=row.expr if is_generated else None,
        stored=row.generated != "v",
        collation=_collation(row),
        published=is_published,
        missing=row.missing,
        type_oid=row.type,
        typmod=row.typmod,
    )


def _collation(row: Any) -> tuple[str, str] | None:
    return (row.collation_schema, row.collation_name) if row.collation_name else None


def _keys(rows: Sequence[Any]) -> dict[str, Any]:
    """Primary key, other keys and identity, as arguments of a definition."""
    return {
        "primary_key": next((tuple(row.names) for row in rows if row.is_primary), ()),
        "unique_keys": tuple(
            dict.fromkeys(tuple(row.names) for row in rows if row.identifies and not row.is_primary)
        ),
        "identity_key": next((tuple(row.names) for row in rows if row.is_identity), ()),
    }


def _index(row: Any) -> IndexDefinition:
    return IndexDefinition(row.name, row.is_unique, row.definition, tuple(row.key or ()), row.oid)


def _constraint(row: Any) -> ConstraintDefinition:
    references = None
    if row.referenced_name:
        references = (row.referenced_schema, row.referenced_name)
    return ConstraintDefinition(
        row.name,
        _CONSTRAINT_KINDS[row.kind],
        row.definition,
        tuple(row.key or ()),
        references,
        row.oid,
    )


def _grouped(rows: Iterable[Any]) -> dict[int, list[Any]]:
    grouped: dict[int, list[Any]] = {}
    for row in rows:
        grouped.setdefault(row.table, []).append(row)
    return grouped
