"""All that it takes to make a table again somewhere else, as the source's catalogue tells it.

``TableSchema`` is what the stream says of a table, and enough to read its rows; this is what a
destination needs to hold them. No I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

from penstock.model.stored import Stored
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
    ``type_oid`` is the type's in the source, 0 where it is not known, and ``typmod`` its modifier
    there, None where it is not known; they are not compared.
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
    typmod: int | None = field(default=None, compare=False)

    @property
    def is_delivered(self) -> bool:
        """Whether its values come and are wanted."""
        return self.published and not self.ignored


class Announced(NamedTuple):
    """A column as a Relation message should announce it: its type's oid and modifier in the source,
    None for a modifier that is not known.
    """

    name: str
    type_oid: int
    typmod: int | None


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


@dataclass(frozen=True)
class TableDefinition(Stored):
    """One table of the source. ``types`` are in an order in which they can be created.

    ``unique_keys`` are the column names of unique indexes that could identify a row: neither
    partial nor deferrable nor over expressions, all columns NOT NULL; not the primary key itself.
    ``identity_key`` are the columns of REPLICA IDENTITY USING INDEX. ``indexes`` and
    ``constraints`` are what rows do not need to be replicated; the primary key is not among them.
    ``partitions`` are the oids of all below a partitioned table; they are not compared.
    ``left_out`` says what of the table is not to be made elsewhere, and why; it is not compared.
    ``transform`` tells under which rules and key its values are changed on the way; empty: none.
    ``rows`` tells by which condition a destination that holds rows holds some of them; empty: all.
    ``version`` is the number of the change of the source that made it so, 0 where it is not known;
    it is not compared.
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
    left_out: tuple[str, ...] = field(default=(), compare=False)
    transform: str = ""
    rows: str = ""
    version: int = field(default=0, compare=False)

    @property
    def qualified_name(self) -> str:
        return f"{self.schema}.{self.name}"

    def says_the_same(self, other: TableDefinition) -> bool:
        """Whether the other one is the same also in what definitions are not compared by."""
        return self == other and self.to_json() == other.to_json()

    @cached_property
    def announced(self) -> tuple[Announced, ...]:
        """How the stream announces the columns that are delivered, in their order; empty where that
        is not known.
        """
        found = [c for c in self.columns if c.is_delivered and c.attnum > 0]
        if not all(column.type_oid for column in found):
            return ()
        return tuple(Announced(column.name, column.type_oid, column.typmod) for column in found)

    def without_keys(self) -> TableDefinition:
        """The same with nothing that tells rows apart, or serves to find them: for histories."""
        return replace(
            self,
            primary_key=(),
            unique_keys=(),
            identity_key=(),
            replica_identity="d",
            indexes=(),
            constraints=(),
        )

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
