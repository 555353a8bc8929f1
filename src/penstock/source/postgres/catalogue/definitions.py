"""What a catalogue says of tables, in all that it takes to make them again elsewhere.

The number of queries does not grow with the number of tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import errors

from penstock.model.table_definition import TableDefinition, TypeDefinition
from penstock.model.table_name import TableName
from penstock.source.postgres.catalogue import document as catalogue_document
from penstock.source.postgres.catalogue.described_tables import Published, tables_in, types_in
from penstock.source.postgres.source_errors import source_errors

_OIDS = """
SELECT c.oid::bigint
  FROM unnest(%s::text[], %s::text[]) WITH ORDINALITY AS wanted (schema, name, place)
  JOIN pg_namespace n ON n.nspname = wanted.schema
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
 WHERE c.relkind IN ('r', 'p')
 ORDER BY wanted.place
"""

# Lists of columns count where every publication that names the table has one.
_COLUMN_LISTS = """
SELECT r.prrelid::bigint, array_agg(DISTINCT k.attnum)
  FROM pg_publication_rel r
  JOIN pg_publication p ON p.oid = r.prpubid
  LEFT JOIN LATERAL unnest(r.prattrs::int2[]) AS k (attnum) ON true
 WHERE p.pubname = ANY (%s)
 GROUP BY r.prrelid
HAVING bool_and(r.prattrs IS NOT NULL)
"""

_GENERATED = "SELECT bool_or(pubgencols = 's') FROM pg_publication WHERE pubname = ANY (%s)"


_ATTEMPTS = 5


def read_definitions(
    conn: psycopg.Connection[Any], tables: Sequence[TableName], publications: Sequence[str]
) -> list[TableDefinition]:
    """The definitions of these tables of the source, in this order; one that is gone is left out.

    ``publications`` are those that the stream follows: they decide which columns are published.
    """
    with source_errors("reading table definitions"):
        return definitions_of(conn, tables, publications)


def read_definitions_by_oid(
    conn: psycopg.Connection[Any], tables: Sequence[int], publications: Sequence[str]
) -> dict[int, TableDefinition]:
    """The same for tables that are known already, whatever they are called by now."""
    with source_errors("reading table definitions"), qualified_names(conn):
        document = _ask(conn, catalogue_document.TABLES, tables)
        return tables_in(document, published_columns(conn, publications))


def definitions_of(
    conn: psycopg.Connection[Any], tables: Sequence[TableName], publications: Sequence[str] = ()
) -> list[TableDefinition]:
    """As ``read_definitions``, of any database; psycopg's errors come through."""
    with qualified_names(conn):
        found = conn.execute(_OIDS, [[t.schema for t in tables], [t.name for t in tables]])
        oids = [oid for (oid,) in found]
        described = tables_in(
            _ask(conn, catalogue_document.TABLES, oids), published_columns(conn, publications)
        )
    # One that was dropped between the two questions is in the first answer alone.
    return [described[oid] for oid in oids if oid in described]


def types_of(conn: psycopg.Connection[Any]) -> dict[tuple[str, str], TypeDefinition]:
    """Every type of a database that somebody could create with CREATE TYPE or CREATE DOMAIN."""
    with qualified_names(conn):
        return types_in(_ask(conn, catalogue_document.TYPES, []))


def published_columns(conn: psycopg.Connection[Any], publications: Sequence[str]) -> Published:
    """The columns that the publications send; before 15 there are no lists of them."""
    names = [list(publications)]
    if not publications or conn.info.server_version < 150000:
        return Published()
    lists = {table: frozenset(columns) for table, columns in conn.execute(_COLUMN_LISTS, names)}
    if conn.info.server_version < 180000:
        return Published(lists)
    return Published(lists, conn.execute(_GENERATED, names).fetchone() == (True,))


@contextmanager
def qualified_names(conn: psycopg.Connection[Any]) -> Iterator[None]:
    """One transaction in which SQL that the server writes names the schema of everything that is
    not the system's, and quotes no more than it has to. Leaves the search path as it was.
    """
    with conn.transaction():
        row = conn.execute("SELECT current_setting('search_path')").fetchone()
        conn.execute(
            "SELECT set_config('search_path', '', true),"
            " set_config('quote_all_identifiers', 'off', true)"
        )
        yield
        # An error rolls it back; otherwise the caller's transaction would go on without it.
        conn.execute("SELECT set_config('search_path', %s, true)", row)


def _ask(conn: psycopg.Connection[Any], document: str, tables: Sequence[int]) -> str:
    query = catalogue_document.as_query(document)
    for attempt in range(_ATTEMPTS):
        try:
            with conn.transaction():
                row = conn.execute(query, {"tables": list(tables)}).fetchone()
        except errors.InternalError_:
            # The server looks some things up as they are now: what was dropped meanwhile is not
            # found, and the next time it is not looked for.
            if attempt == _ATTEMPTS - 1:
                raise
        else:
            break
    assert row is not None  # noqa: S101 (it is one value)
    return str(row[0])
