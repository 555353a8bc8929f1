"""What the source's catalogue says about tables and types."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import psycopg
from psycopg.rows import class_row

from penstock.model.table_name import TableName
from penstock.model.table_schema import PgType, ReplicaIdentity, TypeKind
from penstock.source.postgres.source_errors import source_errors

RelationKind = Literal["r", "p", "v", "m", "f"]
Persistence = Literal["p", "u", "t"]


@dataclass(frozen=True)
class CatalogueTable:
    """A relation that a pattern might match: a table, or something that looks like one.

    ``primary_key`` is empty without one. ``identity_index`` says whether the index that
    REPLICA IDENTITY USING INDEX named still exists. ``generated_identity`` says that the columns of
    the replica identity do not come as such: one is generated. ``ancestors`` are the oids of the
    partitioned tables above a partition, the nearest first. ``owned`` and ``selectable`` are about
    the connected role.
    """

    oid: int
    schema: str
    name: str
    kind: RelationKind
    persistence: Persistence
    replica_identity: ReplicaIdentity
    primary_key: tuple[str, ...]
    primary_key_deferrable: bool
    identity_index: bool
    generated_identity: bool
    ancestors: tuple[int, ...]
    owner: str
    owned: bool
    selectable: bool

    @property
    def table_name(self) -> TableName:
        return TableName(self.schema, self.name)

    @property
    def is_partition(self) -> bool:
        return bool(self.ancestors)

    @property
    def can_be_published(self) -> bool:
        return self.kind in ("r", "p") and self.persistence == "p"

    @property
    def why_not_published(self) -> str:
        """A few words about what it is, where it cannot be published."""
        if self.kind in ("v", "m", "f"):
            names = {"v": "a view", "m": "a materialised view", "f": "a foreign table"}
            return names[self.kind]
        return {"p": "", "u": "unlogged", "t": "temporary"}[self.persistence]

    @property
    def missing_identity(self) -> str:
        """Why its rows have no identity, else "".

        Publishing such a table makes the application's UPDATE and DELETE fail.
        """
        if self.generated_identity:
            return "its replica identity has a generated column"
        if self.replica_identity == "f":
            return ""
        if self.replica_identity == "n":
            return "REPLICA IDENTITY NOTHING"
        if self.replica_identity == "i":
            return "" if self.identity_index else "the index of its replica identity is gone"
        if not self.primary_key:
            return "no primary key"
        return "its primary key is deferrable" if self.primary_key_deferrable else ""


# Schemas whose tables are nobody's data: the system's and our own. A generated column is not sent.
# From 18 on Postgres refuses UPDATE and DELETE of a published table with one in its identity, which
# with FULL is every column; before, FULL is all that is sent.
_TABLES = """
WITH RECURSIVE ancestry AS (
    SELECT inhrelid AS oid, inhparent AS ancestor, 1 AS level
      FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
     WHERE relispartition
    UNION ALL
    SELECT a.oid, i.inhparent, a.level + 1
      FROM ancestry a
      JOIN pg_inherits i ON i.inhrelid = a.ancestor
      JOIN pg_class c ON c.oid = i.inhrelid AND c.relispartition
)
SELECT c.oid::bigint AS oid,
       n.nspname AS schema,
       c.relname AS name,
       c.relkind::text AS kind,
       c.relpersistence::text AS persistence,
       c.relreplident::text AS replica_identity,
       coalesce((SELECT array_agg(a.attname::text ORDER BY k.place)
                   FROM pg_index i
                  CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k (attnum, place)
                   JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = k.attnum
                  WHERE i.indrelid = c.oid AND i.indisprimary AND k.place <= i.indnkeyatts
                ), '{}') AS primary_key,
       coalesce((SELECT NOT i.indimmediate FROM pg_index i
                  WHERE i.indrelid = c.oid AND i.indisprimary), false) AS primary_key_deferrable,
       EXISTS (SELECT FROM pg_index i
                WHERE i.indrelid = c.oid AND i.indisreplident AND i.indisvalid) AS identity_index,
       EXISTS (SELECT FROM pg_attribute a
                WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
                  AND a.attgenerated <> ''
                  AND CASE WHEN c.relreplident = 'f'
                           THEN current_setting('server_version_num')::int >= 180000
                           ELSE EXISTS (SELECT FROM pg_index i
                                         CROSS JOIN LATERAL unnest(i.indkey::int2[])
                                               WITH ORDINALITY AS k (attnum, place)
                                         WHERE i.indrelid = c.oid AND i.indisvalid
                                           AND k.attnum = a.attnum AND k.place <= i.indnkeyatts
                                           AND CASE c.relreplident WHEN 'd' THEN i.indisprimary
                                                                   WHEN 'i' THEN i.indisreplident
                                                                   ELSE false END)
                       END) AS generated_identity,
       coalesce((SELECT array_agg(a.ancestor::bigint ORDER BY a.level)
                   FROM ancestry a WHERE a.oid = c.oid), '{}') AS ancestors,
       pg_get_userbyid(c.relowner)::text AS owner,
       pg_has_role(c.relowner, 'USAGE') AS owned,
       has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(c.oid, 'SELECT') AS selectable
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f')
   AND n.nspname NOT IN ('information_schema', 'penstock', 'penstock_ddl')
   AND n.nspname NOT LIKE 'pg\\_%'
 ORDER BY n.nspname, c.relname
"""


def read_tables(conn: psycopg.Connection[Any]) -> list[CatalogueTable]:
    """Every table, view and foreign table outside the system's schemas and ours, by name."""
    with source_errors("reading tables"), conn.cursor(row_factory=class_row(_Row)) as cursor:
        return [row.table() for row in cursor.execute(_TABLES)]


@dataclass
class _Row:
    """One row of the query: Postgres arrays come as lists, which a frozen table must not hold."""

    oid: int
    schema: str
    name: str
    kind: RelationKind
    persistence: Persistence
    replica_identity: ReplicaIdentity
    primary_key: list[str]
    primary_key_deferrable: bool
    identity_index: bool
    generated_identity: bool
    ancestors: list[int]
    owner: str
    owned: bool
    selectable: bool

    def table(self) -> CatalogueTable:
        values = vars(self) | {
            "primary_key": tuple(self.primary_key),
            "ancestors": tuple(self.ancestors),
        }
        return CatalogueTable(**values)


_TYPES = """
WITH RECURSIVE wanted AS (
    SELECT unnest(%s::oid[]) AS oid
    UNION
    SELECT related.oid
      FROM wanted w
      JOIN pg_type t ON t.oid = w.oid
      CROSS JOIN LATERAL (VALUES (t.typelem), (t.typbasetype)) AS related (oid)
     WHERE related.oid <> 0
)
SELECT t.oid::bigint, t.typname::text, t.typtype::text, t.typbasetype::bigint, t.typtypmod,
       coalesce(element.oid, 0)::bigint
  FROM wanted
  JOIN pg_type t ON t.oid = wanted.oid
  LEFT JOIN pg_type element ON element.oid = t.typelem AND element.typarray = t.oid
"""

_KINDS: dict[str, TypeKind] = {
    "b": "base",
    "c": "composite",
    "d": "domain",
    "e": "enum",
    "m": "multirange",
    "p": "base",
    "r": "range",
}


def column_numbers(
    conn: psycopg.Connection[Any], tables: Iterable[int]
) -> dict[int, dict[str, int]]:
    """The numbers of the columns of tables (by oid), by name."""
    with source_errors("reading columns"):
        rows = conn.execute(
            "SELECT attrelid::bigint, attname::text, attnum FROM pg_attribute"
            " WHERE attrelid = ANY (%s::oid[]) AND attnum > 0 AND NOT attisdropped",
            [list(tables)],
        ).fetchall()
    found: dict[int, dict[str, int]] = {}
    for oid, name, number in rows:
        found.setdefault(oid, {})[name] = number
    return found


def resolve_types(conn: psycopg.Connection[Any], oids: Iterable[int]) -> dict[int, PgType]:
    """The types behind the oids, with the element of each array and the base of each domain.

    An oid that the catalogue does not know (dropped since) is left out. Only true arrays are
    arrays: ``point`` or ``int2vector`` have elements too, and another text form.
    """
    with source_errors("reading types"):
        rows = {row[0]: row[1:] for row in conn.execute(_TYPES, [list(oids)])}
    resolved: dict[int, PgType] = {}

    def resolve(oid: int) -> PgType:
        if oid not in resolved:
            name, letter, base, typmod, element = rows[oid]
            kind = "array" if element else _KINDS[letter]
            inner = element or base
            resolved[oid] = PgType(
                oid=oid,
                name=name,
                kind=kind,
                inner=resolve(inner) if inner else None,
                typmod=typmod if kind == "domain" else -1,
            )
        return resolved[oid]

    for oid in rows:
        resolve(oid)
    return resolved
