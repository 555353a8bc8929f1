"""Tables and columns as a Relation message and the catalogue describe them. No I/O."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

ReplicaIdentity = Literal["d", "n", "f", "i"]
TypeKind = Literal["base", "array", "enum", "domain", "composite", "range", "multirange"]


@dataclass(frozen=True)
class PgType:
    """A Postgres type, resolved as far as decoding needs it.

    ``inner`` is the element type of an array and the base type of a domain.
    ``typmod`` is the modifier that a domain puts on its base type, else -1.
    """

    oid: int
    name: str
    kind: TypeKind = "base"
    inner: PgType | None = None
    typmod: int = -1

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"oid": self.oid, "name": self.name, "kind": self.kind}
        if self.inner is not None:
            value["inner"] = self.inner.to_json()
        if self.typmod != -1:
            value["typmod"] = self.typmod
        return value

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> PgType:
        inner = value.get("inner")
        return cls(
            oid=value["oid"],
            name=value["name"],
            kind=value["kind"],
            inner=None if inner is None else cls.from_json(inner),
            typmod=value.get("typmod", -1),
        )


@dataclass(frozen=True)
class ColumnSchema:
    """One column: its name, its type, the type's modifier, and whether the identity holds it."""

    name: str
    type: PgType
    typmod: int = -1
    is_key: bool = False

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "type": self.type.to_json(),
            "typmod": self.typmod,
            "key": self.is_key,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ColumnSchema:
        return cls(value["name"], PgType.from_json(value["type"]), value["typmod"], value["key"])


@dataclass(frozen=True)
class TableSchema:
    """One version of a table's definition, as the stream announced it."""

    oid: int
    schema: str
    name: str
    replica_identity: ReplicaIdentity
    columns: tuple[ColumnSchema, ...]

    @property
    def qualified_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @cached_property
    def key_columns(self) -> tuple[int, ...]:
        """Indexes of the columns that identify a row; all of them under REPLICA IDENTITY FULL."""
        return tuple(i for i, column in enumerate(self.columns) if column.is_key)

    @cached_property
    def json_text(self) -> str:
        """The definition as one line of JSON, the same for the same definition."""
        return json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))

    @cached_property
    def fingerprint(self) -> str:
        """The same for the same definition, in any session and any segment."""
        return hashlib.sha256(self.json_text.encode()).hexdigest()[:16]

    @cached_property
    def _hash(self) -> int:
        return hash(self.json_text)

    def __hash__(self) -> int:
        # Definitions are looked up for every segment; hashing all their columns each time shows.
        return self._hash

    def to_json(self) -> dict[str, Any]:
        return {
            "oid": self.oid,
            "schema": self.schema,
            "name": self.name,
            "replica_identity": self.replica_identity,
            "columns": [column.to_json() for column in self.columns],
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> TableSchema:
        return cls(
            oid=value["oid"],
            schema=value["schema"],
            name=value["name"],
            replica_identity=value["replica_identity"],
            columns=tuple(ColumnSchema.from_json(column) for column in value["columns"]),
        )
