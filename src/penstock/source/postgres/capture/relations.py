"""Relation messages → table definitions, with the catalogue's word on user-defined types."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import cast

from penstock.model.pg_types import builtin_type
from penstock.model.table_schema import ColumnSchema, PgType, ReplicaIdentity, TableSchema
from penstock.pgoutput.messages import Relation

ResolveTypes = Callable[[Iterable[int]], dict[int, PgType]]


class RelationDescriber:
    """Describes relations; asks ``resolve`` only for types that Postgres does not bring along."""

    def __init__(self, resolve: ResolveTypes) -> None:
        self._resolve = resolve
        self._types: dict[int, PgType] = {}

    def __call__(self, relation: Relation) -> TableSchema:
        # Asked again at each Relation message: a type may have been altered since the last one.
        custom = {c.type_oid for c in relation.columns if builtin_type(c.type_oid) is None}
        if custom:
            self._types.update(self._resolve(custom))
        return TableSchema(
            oid=relation.oid,
            schema=relation.schema,
            name=relation.name,
            replica_identity=cast("ReplicaIdentity", relation.replica_identity),
            columns=tuple(
                ColumnSchema(
                    name=column.name,
                    type=self._type(column.type_oid),
                    typmod=column.typmod,
                    is_key=column.is_key,
                )
                for column in relation.columns
            ),
        )

    def _type(self, oid: int) -> PgType:
        known = builtin_type(oid) or self._types.get(oid)
        # A type that was dropped since can only be carried as text.
        return known or PgType(oid, f"dropped type {oid}")
