"""What a catalogue says of tables, in all that it takes to make them again elsewhere.

The number of queries does not grow with the number of tables.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import psycopg
from psycopg.rows import namedtuple_row

from penstock.postgres.catalogue import TableName
from penstock.postgres.index_definitions import constraints_of, indexes_of
from penstock.postgres.source_errors import source_errors
from penstock.table_definition import (
    ColumnDefinition,
    TableDefinition,
    TypeDefinition,
    TypeName,
    UserTypeKind,
)


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


_TABLES = """
SELECT c.oid::bigint AS oid, n.nspname AS schema, c.relname AS name,
       c.relreplident::text AS replica_identity
  FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS wanted (schema, name, place)
  JOIN pg_namespace n ON n.nspname = wanted.schema
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
 WHERE c.relkind IN ('r', 'p')
 ORDER BY wanted.place
"""

_COLUMNS = """
SELECT a.attrelid::bigint AS table, a.attnum, a.attname AS name, a.atttypid::bigint AS type,
       a.atttypmod AS typmod, a.attnotnull AS not_null, pg_get_expr(d.adbin, d.adrelid) AS expr,
       a.attidentity::text AS identity, a.attgenerated::text AS generated,
       collation_schema.nspname AS collation_schema, c.collname AS collation_name,
       (SELECT format('%%I.%%I', n.nspname, s.relname)
          FROM pg_depend owned
          JOIN pg_class s ON s.oid = owned.objid AND s.relkind = 'S'
          JOIN pg_namespace n ON n.oid = s.relnamespace
          JOIN pg_depend used ON used.classid = 'pg_attrdef'::regclass AND used.objid = d.oid
                             AND used.refclassid = 'pg_class'::regclass AND used.refobjid = s.oid
         WHERE owned.classid = 'pg_class'::regclass AND owned.refclassid = 'pg_class'::regclass
           AND owned.refobjid = a.attrelid AND owned.refobjsubid = a.attnum
           AND owned.deptype = 'a'
         LIMIT 1) AS sequence
  FROM pg_attribute a
  JOIN pg_type t ON t.oid = a.atttypid
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
  LEFT JOIN pg_collation c ON c.oid = a.attcollation AND a.attcollation <> t.typcollation
  LEFT JOIN pg_namespace collation_schema ON collation_schema.oid = c.collnamespace
 WHERE a.attrelid = ANY (%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attrelid, a.attnum
"""

# Shortest unique key first: any will do, and it is what rows are found by.
_KEYS = """
SELECT i.indrelid::bigint AS table, i.indisprimary AS is_primary, i.indisreplident AS is_identity,
       i.indimmediate AND i.indpred IS NULL AND keys.names_all AND keys.not_null AS identifies,
       keys.names
  FROM pg_index i
 CROSS JOIN LATERAL (
       SELECT array_agg(a.attname::text ORDER BY k.place) AS names,
              bool_and(a.attname IS NOT NULL) AS names_all,
              bool_and(a.attnotnull) AS not_null
         FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
         LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
        WHERE k.place <= i.indnkeyatts
       ) AS keys
 WHERE i.indrelid = ANY (%s::oid[]) AND i.indisunique AND i.indisvalid
 ORDER BY i.indrelid, i.indnkeyatts, keys.names
"""

_PUBLISHED = """
SELECT schemaname AS schema, tablename AS name, attnames::text[] AS columns
  FROM pg_publication_tables WHERE pubname = ANY (%s)
"""

# Types that we could create, all of them at once: few databases have more than hundreds.
_TYPES = """
SELECT t.oid::bigint AS oid, n.nspname AS schema, t.typname AS name, t.typtype::text AS kind,
       coalesce((SELECT array_agg(e.enumlabel::text ORDER BY e.enumsortorder)
                   FROM pg_enum e WHERE e.enumtypid = t.oid), '{}') AS labels,
       coalesce(r.rngsubtype, t.typbasetype)::bigint AS base,
       t.typtypmod AS typmod, t.typnotnull AS not_null, pg_get_expr(t.typdefaultbin, 0) AS expr,
       attributes.names, attributes.types, attributes.typmods,
       coalesce((SELECT array_agg(format('CONSTRAINT %%I %%s', k.conname,
                                         pg_get_constraintdef(k.oid)) ORDER BY k.conname)
                   FROM pg_constraint k
                  WHERE k.contypid = t.oid AND k.contype = 'c' AND k.convalidated
                ), '{}') AS constraints,
       collation_schema.nspname AS collation_schema, c.collname AS collation_name,
       coalesce((SELECT m.typname FROM pg_type m WHERE m.oid = r.rngmultitypid), '') AS multirange
  FROM pg_type t
  JOIN pg_namespace n ON n.oid = t.typnamespace
  LEFT JOIN pg_class relation ON relation.oid = t.typrelid
  LEFT JOIN pg_range r ON r.rngtypid = t.oid
  LEFT JOIN pg_type base ON base.oid = coalesce(r.rngsubtype, t.typbasetype)
  LEFT JOIN pg_collation c ON c.oid = coalesce(r.rngcollation, t.typcollation)
                          AND c.oid <> base.typcollation
  LEFT JOIN pg_namespace collation_schema ON collation_schema.oid = c.collnamespace
 CROSS JOIN LATERAL (
       SELECT coalesce(array_agg(a.attname::text ORDER BY a.attnum), '{}') AS names,
              coalesce(array_agg(a.atttypid::bigint ORDER BY a.attnum), '{}') AS types,
              coalesce(array_agg(a.atttypmod ORDER BY a.attnum), '{}') AS typmods
         FROM pg_attribute a
        WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
       ) AS attributes
 WHERE (t.typtype IN ('e', 'd', 'r') OR t.typtype = 'c' AND relation.relkind = 'c')
   AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%%'
   AND NOT EXISTS (SELECT FROM pg_depend d
                    WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e')
"""

_TYPE_NAMES = """
SELECT used.oid::bigint AS oid, used.typmod, n.nspname AS schema, t.typname AS name,
       format_type(t.oid, -1) AS bare, format_type(t.oid, used.typmod) AS shown,
       element.oid IS NOT NULL AS is_array, coalesce(x.extname, '') AS extension,
       coalesce(r.rngtypid, t.oid)::bigint AS made
  FROM unnest(%s::oid[], %s::int[]) AS used (oid, typmod)
  JOIN pg_type written ON written.oid = used.oid
  LEFT JOIN pg_type element ON element.oid = written.typelem AND element.typarray = written.oid
  JOIN pg_type t ON t.oid = coalesce(element.oid, written.oid)
  JOIN pg_namespace n ON n.oid = t.typnamespace
  LEFT JOIN pg_range r ON r.rngmultitypid = t.oid
  LEFT JOIN pg_depend d ON d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e'
                       AND d.refclassid = 'pg_extension'::regclass
  LEFT JOIN pg_extension x ON x.oid = d.refobjid
"""

_KINDS: dict[str, UserTypeKind] = {"e": "enum", "d": "domain", "c": "composite", "r": "range"}


def read_definitions(
    conn: psycopg.Connection[Any], tables: Sequence[TableName], publications: Sequence[str]
) -> list[TableDefinition]:
    """The definitions of these tables of the source, in this order; one that is gone is left out.

    ``publications`` are those that the stream follows: they decide which columns are published.
    """
    with source_errors("reading table definitions"):
        return definitions_of(conn, tables, publications)


def definitions_of(
    conn: psycopg.Connection[Any], tables: Sequence[TableName], publications: Sequence[str] = ()
) -> list[TableDefinition]:
    """As ``read_definitions``, of any database; psycopg's errors come through."""
    with qualified_names(conn):
        found = _rows(conn, _TABLES, [t.schema for t in tables], [t.name for t in tables])
        oids = [row.oid for row in found]
        columns = _grouped(_rows(conn, _COLUMNS, oids))
        keys = _grouped(_rows(conn, _KEYS, oids))
        indexes, constraints = indexes_of(conn, oids), constraints_of(conn, oids)
        published = _published(conn, publications)
        types = _Types(
            conn,
            (_TypeUse(row.type, row.typmod) for rows in columns.values() for row in rows),
        )
    return [
        TableDefinition(
            oid=row.oid,
            schema=row.schema,
            name=row.name,
            replica_identity=row.replica_identity,
            columns=tuple(
                _column(column, types, published.get((row.schema, row.name)))
                for column in columns.get(row.oid, [])
            ),
            types=types.needed_by(
                _TypeUse(column.type, column.typmod) for column in columns.get(row.oid, [])
            ),
            indexes=tuple(indexes.get(row.oid, ())),
            constraints=tuple(constraints.get(row.oid, ())),
            **_keys(keys.get(row.oid, [])),
        )
        for row in found
    ]


def types_of(conn: psycopg.Connection[Any]) -> dict[tuple[str, str], TypeDefinition]:
    """Every type of a database that somebody could create with CREATE TYPE or CREATE DOMAIN."""
    with qualified_names(conn):
        return {(kind.schema, kind.name): kind for kind in _Types(conn, ()).all()}


@contextmanager
def qualified_names(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """One transaction in which SQL that the server writes names the schema of everything that is
    not the system's. Leaves the search path as it was.
    """
    with conn.transaction():
        row = conn.execute("SELECT current_setting('search_path')").fetchone()
        conn.execute("SELECT set_config('search_path', '', true)")
        yield
        # An error rolls it back; otherwise the caller's transaction would go on without it.
        conn.execute("SELECT set_config('search_path', %s, true)", row)


class _Types:
    """The types that some uses need, down to the last one."""

    def __init__(self, conn: psycopg.Connection[Any], uses: Iterable[_TypeUse]) -> None:
        self._rows = {row.oid: row for row in _rows(conn, _TYPES)}
        wanted = set(uses)
        for row in self._rows.values():
            wanted.update(_uses(row))
        ordered = sorted(wanted)
        named = _rows(
            conn, _TYPE_NAMES, [use.oid for use in ordered], [use.typmod for use in ordered]
        )
        self._names = {
            _TypeUse(row.oid, row.typmod): _KnownType(_type_name(row), row.made) for row in named
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


def _column(row: Any, types: _Types, published: frozenset[str] | None) -> ColumnDefinition:
    """``published`` are the columns that publications name; None where none holds the table."""
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
        published=not is_generated if published is None else row.name in published,
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


def _published(
    conn: psycopg.Connection[Any], publications: Sequence[str]
) -> Mapping[tuple[str, str], frozenset[str]]:
    """The columns that the publications send, by table; before 15 there are no column lists."""
    if not publications or conn.info.server_version < 150000:
        return {}
    found: dict[tuple[str, str], frozenset[str]] = {}
    for row in _rows(conn, _PUBLISHED, list(publications)):
        key = (row.schema, row.name)
        found[key] = found.get(key, frozenset()) | frozenset(row.columns or ())
    return found


def _grouped(rows: Iterable[Any]) -> dict[int, list[Any]]:
    grouped: dict[int, list[Any]] = {}
    for row in rows:
        grouped.setdefault(row.table, []).append(row)
    return grouped


def _rows(conn: psycopg.Connection[Any], query: Any, *parameters: Any) -> list[Any]:
    with conn.cursor(row_factory=namedtuple_row) as cursor:
        return cursor.execute(query, parameters).fetchall()
