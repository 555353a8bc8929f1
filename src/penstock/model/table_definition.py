"""All that it takes to make a table again somewhere else, as the source's catalogue tells it.

``TableSchema`` is what the stream says of a table, and enough to read its rows; this is what a
destination needs to hold them. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from penstock.model.table_schema import ReplicaIdentity

UserTypeKind = Literal["enum", "domain", "composite", "range"]
ConstraintKind = Literal["check", "unique", "exclude", "foreign"]


@dataclass(frozen=True)
class TypeName:
    """A type as a column uses it: ``numeric(12,2)[]`` is pg_catalog, numeric, (12,2), an array.

    ``name`` and ``modifier`` of a type of pg_catalog are as format_type() shows them (``timestamp``
    and ``(3) with time zone``); a user-defined type has its plain name and its own schema.
    ``extension`` names the extension that brought the type: it comes from there, in whatever schema
    the extension was installed, and is never made by us.
    """

    schema: str
    name: str
    modifier: str = ""
    is_array: bool = False
    extension: str = ""

    @property
    def is_user_defined(self) -> bool:
        return self.schema != "pg_catalog"

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> TypeName:
        return cls(**value)


@dataclass(frozen=True)
class TypeDefinition:
    """A user-defined type that columns need.

    ``labels`` are an enum's; ``attributes`` a composite's columns; ``base`` is a domain's base type
    or a range's subtype. ``constraints`` are a domain's checks as SQL, with their names;
    ``not_null`` and ``default`` its other properties. ``collation`` is a domain's or a range's,
    where it is not the base's own. ``multirange`` is the name of the type that comes with a range.
    ``oid`` tells a type that was renamed from another one; it is not compared.
    """

    schema: str
    name: str
    kind: UserTypeKind
    labels: tuple[str, ...] = ()
    attributes: tuple[tuple[str, TypeName], ...] = ()
    base: TypeName | None = None
    constraints: tuple[str, ...] = ()
    not_null: bool = False
    default: str | None = None
    collation: tuple[str, str] | None = None
    multirange: str = ""
    oid: int = field(default=0, compare=False)

    @property
    def qualified_name(self) -> str:
        return f"{self.schema}.{self.name}"

    def to_json(self) -> dict[str, Any]:
        return {
            "schema": self.schema,
            "name": self.name,
            "kind": self.kind,
            "labels": list(self.labels),
            "attributes": [[name, kind.to_json()] for name, kind in self.attributes],
            "base": None if self.base is None else self.base.to_json(),
            "constraints": list(self.constraints),
            "not_null": self.not_null,
            "default": self.default,
            "collation": None if self.collation is None else list(self.collation),
            "multirange": self.multirange,
            "oid": self.oid,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> TypeDefinition:
        base, collation = value["base"], value["collation"]
        return cls(
            value["schema"],
            value["name"],
            value["kind"],
            tuple(value["labels"]),
            tuple((name, TypeName.from_json(kind)) for name, kind in value["attributes"]),
            None if base is None else TypeName.from_json(base),
            tuple(value["constraints"]),
            value["not_null"],
            value["default"],
            None if collation is None else (collation[0], collation[1]),
            value["multirange"],
            value.get("oid", 0),
        )


@dataclass(frozen=True)
class ColumnDefinition:
    """One column. ``attnum`` identifies it for as long as it lives, whatever it is called.

    ``default`` is SQL, None without one. ``identity`` is "", ``a`` (ALWAYS) or ``d`` (BY DEFAULT).
    ``sequence`` is set where the default takes values of a sequence that the column owns (serial):
    its qualified name, quoted where SQL needs it.
    ``generated`` is the SQL of a generated column; ``stored`` tells the two kinds of those apart.
    ``collation`` is None for the type's own. ``published`` is False where the stream leaves the
    column out: a generated one, or one that the publication's column list does not name.
    ``missing`` is the text of an array with the value of rows that are older than the column.
    ``type_oid`` is the type's in the source, 0 where it is not known; it is not compared.
    ``ignored`` is True where the pipeline leaves it out (schema_policy.py).
    """

    attnum: int
    name: str
    type: TypeName
    not_null: bool = False
    default: str | None = None
    identity: str = ""
    sequence: str | None = None
    generated: str | None = None
    stored: bool = True
    collation: tuple[str, str] | None = None
    published: bool = True
    missing: str | None = field(default=None, compare=False)
    ignored: bool = False
    type_oid: int = field(default=0, compare=False)

    @property
    def is_delivered(self) -> bool:
        """Whether its values come and are wanted."""
        return self.published and not self.ignored

    def to_json(self) -> dict[str, Any]:
        return {
            **vars(self),
            "type": self.type.to_json(),
            "collation": None if self.collation is None else list(self.collation),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ColumnDefinition:
        collation = value["collation"]
        return cls(
            **{
                **value,
                "type": TypeName.from_json(value["type"]),
                "collation": None if collation is None else (collation[0], collation[1]),
            }
        )


@dataclass(frozen=True)
class IndexDefinition:
    """An index that no constraint needs. ``definition`` is SQL: what follows the table's name.

    ``key`` are the columns of a unique index that could identify rows; empty for all others.
    ``oid`` tells an index that was renamed from another one; it is not compared.
    """

    name: str
    is_unique: bool
    definition: str
    key: tuple[str, ...] = ()
    oid: int = field(default=0, compare=False)

    def to_json(self) -> dict[str, Any]:
        return {**vars(self), "key": list(self.key)}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> IndexDefinition:
        return cls(**{**value, "key": tuple(value["key"])})


@dataclass(frozen=True)
class ConstraintDefinition:
    """A constraint of a table that is neither its primary key nor NOT NULL.

    ``definition`` is SQL: what follows the constraint's name. ``key`` is as in an index's
    definition; ``references`` the schema and name of the table that a foreign key refers to.
    """

    name: str
    kind: ConstraintKind
    definition: str
    key: tuple[str, ...] = ()
    references: tuple[str, str] | None = None
    oid: int = field(default=0, compare=False)

    def to_json(self) -> dict[str, Any]:
        references = None if self.references is None else list(self.references)
        return {**vars(self), "key": list(self.key), "references": references}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ConstraintDefinition:
        references = value["references"]
        return cls(
            value["name"],
            value["kind"],
            value["definition"],
            tuple(value["key"]),
            None if references is None else (references[0], references[1]),
            value.get("oid", 0),
        )


@dataclass(frozen=True)
class TableDefinition:
    """One table of the source. ``types`` are in an order in which they can be created.

    ``unique_keys`` are the column names of unique indexes that could identify a row: neither
    partial nor deferrable nor over expressions, all columns NOT NULL; not the primary key itself.
    ``identity_key`` are the columns of REPLICA IDENTITY USING INDEX. ``indexes`` and
    ``constraints`` are what rows do not need to be replicated; the primary key is not among them.
    ``partitions`` are the oids of all below a partitioned table; they are not compared.
    """

    oid: int
    schema: str
    name: str
    replica_identity: ReplicaIdentity
    columns: tuple[ColumnDefinition, ...]
    primary_key: tuple[str, ...] = ()
    unique_keys: tuple[tuple[str, ...], ...] = ()
    identity_key: tuple[str, ...] = ()
    types: tuple[TypeDefinition, ...] = ()
    indexes: tuple[IndexDefinition, ...] = ()
    constraints: tuple[ConstraintDefinition, ...] = ()
    partitions: tuple[int, ...] = field(default=(), compare=False)

    @property
    def qualified_name(self) -> str:
        return f"{self.schema}.{self.name}"

    @cached_property
    def merge_key(self) -> tuple[str, ...]:
        """The columns by which a row is found again; empty where nothing but its values tells it.

        What old images carry decides: the replica identity's columns, or under FULL all of them, so
        that any key will do. The stream has to send the columns, too.
        """
        if self.replica_identity == "i":
            found = self.identity_key
        elif self.replica_identity == "f":
            found = self.primary_key or next(iter(self.unique_keys), ())
        else:
            found = self.primary_key
        published = {column.name for column in self.columns if column.is_delivered}
        return found if published.issuperset(found) else ()

    def to_json(self) -> dict[str, Any]:
        return {
            "oid": self.oid,
            "schema": self.schema,
            "name": self.name,
            "replica_identity": self.replica_identity,
            "columns": [column.to_json() for column in self.columns],
            "primary_key": list(self.primary_key),
            "unique_keys": [list(key) for key in self.unique_keys],
            "identity_key": list(self.identity_key),
            "types": [kind.to_json() for kind in self.types],
            "indexes": [index.to_json() for index in self.indexes],
            "constraints": [constraint.to_json() for constraint in self.constraints],
            "partitions": list(self.partitions),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> TableDefinition:
        return cls(
            oid=value["oid"],
            schema=value["schema"],
            name=value["name"],
            replica_identity=value["replica_identity"],
            columns=tuple(ColumnDefinition.from_json(column) for column in value["columns"]),
            primary_key=tuple(value["primary_key"]),
            unique_keys=tuple(tuple(key) for key in value["unique_keys"]),
            identity_key=tuple(value["identity_key"]),
            types=tuple(TypeDefinition.from_json(kind) for kind in value["types"]),
            # Definitions that were stored before these were read have none.
            indexes=tuple(map(IndexDefinition.from_json, value.get("indexes", ()))),
            constraints=tuple(map(ConstraintDefinition.from_json, value.get("constraints", ()))),
            partitions=tuple(value.get("partitions", ())),
        )
