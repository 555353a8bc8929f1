"""What a copy of some tables has to read: relations with their sizes, columns and conditions.

The number of queries does not grow with the number of tables.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql
from psycopg.rows import namedtuple_row

from penstock.model.errors import SourceError
from penstock.model.pg_types import builtin_type
from penstock.model.table_definition import TableDefinition
from penstock.model.table_schema import TableSchema
from penstock.pgoutput import messages
from penstock.source.postgres.capture.relations import RelationDescriber
from penstock.source.postgres.catalogue.definitions import qualified_names
from penstock.source.postgres.catalogue.tables import resolve_types
from penstock.source.postgres.source_errors import source_errors


@dataclass(frozen=True)
class Relation:
    """One that holds rows: ``blocks`` of its heap, ``bytes`` with TOAST, ``file`` its file node."""

    oid: int
    schema: str
    name: str
    file: int
    blocks: int
    bytes: int


@dataclass(frozen=True)
class CopyRelations:
    """All that a copy of one table reads.

    ``table`` is what the stream says of it, column for column. A partitioned table's ``relations``
    are its leaf partitions. ``row_filter`` is the publications', as SQL, and counts for stream and
    copy; ``where`` is the pipeline file's and counts for the copy alone. ``column_types`` are the
    columns' types as SQL, without modifiers.
    """

    table: TableSchema
    column_types: tuple[str, ...]
    is_partitioned: bool
    relations: tuple[Relation, ...]
    row_filter: str | None = None
    where: str | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.table.columns)

    @property
    def condition(self) -> str | None:
        """Which rows are copied, as SQL; None for all."""
        parts = [part for part in (self.row_filter, self.where) if part is not None]
        # The line's end keeps a comment in the pipeline file's SQL to itself.
        return " AND ".join(f"({part}\n)" for part in parts) or None


@dataclass(frozen=True)
class CopySources:
    """By the tables' oids: what can be copied, and why the others cannot."""

    found: dict[int, CopyRelations] = field(default_factory=dict)
    refused: dict[int, SourceError] = field(default_factory=dict)


# A partitioned table without partitions comes as one row without a relation.
_RELATIONS = """
SELECT root.oid::bigint AS table, root.relkind::text AS table_kind,
       root.relreplident::text AS identity,
       r.oid::bigint AS oid, n.nspname AS schema, r.relname AS name, r.relkind::text AS kind,
       pg_is_other_temp_schema(r.relnamespace) AS is_foreign_temporary,
       coalesce(pg_relation_filenode(r.oid), 0)::bigint AS file,
       coalesce(pg_relation_size(r.oid), 0) / current_setting('block_size')::bigint AS blocks,
       coalesce(pg_relation_size(r.oid) + coalesce(pg_relation_size(nullif(r.reltoastrelid, 0)), 0),
                0) AS bytes,
       has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(r.oid, 'SELECT') AS selectable,
       row_security_active(r.oid) AS hides_rows,
       current_user::text AS role
  FROM pg_class root
  LEFT JOIN LATERAL (
       SELECT root.oid WHERE root.relkind <> 'p'
       UNION ALL
       SELECT relid FROM pg_partition_tree(root.oid) WHERE isleaf AND root.relkind = 'p'
       ) AS part ON true
  LEFT JOIN pg_class r ON r.oid = part.oid
  LEFT JOIN pg_namespace n ON n.oid = r.relnamespace
 WHERE root.oid = ANY (%s::oid[])
 ORDER BY root.oid, n.nspname, r.relname
"""

# Which columns the stream marks as the row's identity is decided as Postgres does.
_COLUMNS = """
SELECT a.attrelid::bigint AS table, a.attnum, a.attname AS name, a.atttypid::bigint AS type,
       a.atttypmod AS typmod, format_type(a.atttypid, -1) AS spelled,
       c.relreplident = 'f' OR coalesce(a.attnum = ANY (key.columns), false) AS is_key
  FROM pg_attribute a
  JOIN pg_class c ON c.oid = a.attrelid
  LEFT JOIN LATERAL (
       SELECT (i.indkey::int2[])[0:i.indnkeyatts - 1] AS columns
         FROM pg_index i
        WHERE i.indrelid = c.oid AND i.indisvalid
          AND CASE c.relreplident WHEN 'd' THEN i.indisprimary AND i.indimmediate
                                  WHEN 'i' THEN i.indisreplident ELSE false END
       ) AS key ON true
 WHERE a.attrelid = ANY (%s::oid[]) AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attrelid, a.attnum
"""

_FILTERS = """
SELECT schemaname AS schema, tablename AS name, rowfilter AS filter
  FROM pg_publication_tables WHERE pubname = ANY (%s)
"""


def read_relations(
    conn: psycopg.Connection[Any],
    tables: Sequence[TableDefinition],
    publications: Sequence[str],
    where: Mapping[str, str],
) -> CopySources:
    """What copies of these tables read. A table that is gone, or whose columns are others by now,
    is in neither of the answers.

    ``publications`` are those that the stream follows; ``where`` is the pipeline file's SQL by
    ``schema.name``. Ask after the snapshot was taken: a partition that came in between would be
    missing.
    """
    with source_errors("reading what to copy"), qualified_names(conn):
        oids = [table.oid for table in tables]
        relations = _grouped(_rows(conn, _RELATIONS, oids))
        columns = _grouped(_rows(conn, _COLUMNS, oids))
        filters = _filters(conn, publications)
        used = {row.type for rows in columns.values() for row in rows}
        types = resolve_types(conn, [oid for oid in used if builtin_type(oid) is None])
    describe = RelationDescriber(lambda _: types)
    sources = CopySources()
    for table in tables:
        if (rows := relations.get(table.oid)) is None:
            continue
        if (
            refusal := next(filter(None, (_refusal(table, row) for row in rows)), None)
        ) is not None:
            sources.refused[table.oid] = refusal
            continue
        if (sent := _sent(table, columns.get(table.oid, []))) is None:
            continue
        sources.found[table.oid] = CopyRelations(
            table=describe(
                messages.Relation(
                    table.oid,
                    table.schema,
                    table.name,
                    rows[0].identity,
                    tuple(
                        messages.RelationColumn(row.name, row.type, row.typmod, row.is_key)
                        for row in sent
                    ),
                )
            ),
            column_types=tuple(row.spelled for row in sent),
            is_partitioned=rows[0].table_kind == "p",
            relations=tuple(
                Relation(row.oid, row.schema, row.name, row.file, row.blocks, row.bytes)
                for row in rows
                if row.oid is not None
            ),
            row_filter=filters.get((table.schema, table.name)),
            where=where.get(table.qualified_name),
        )
    return sources


def _sent(table: TableDefinition, rows: Sequence[Any]) -> list[Any] | None:
    """The columns that are delivered; None where they are not those of the definition: rows would
    be read in one form and written in another.
    """
    found = {row.attnum: row for row in rows}
    wanted = [column for column in table.columns if column.is_delivered]
    for column in wanted:
        row = found.get(column.attnum)
        if row is None or row.name != column.name or column.type_oid not in {0, row.type}:
            return None
    return [found[column.attnum] for column in wanted]


_KINDS = {"v": "a view", "m": "a materialised view", "f": "a foreign table"}


def _refusal(table: TableDefinition, row: Any) -> SourceError | None:
    """Why this relation of the table cannot be copied."""
    if row.oid is None:
        return None
    copied = f"Table {table.qualified_name} cannot be copied"
    relation = sql.Identifier(row.schema, row.name).as_string(None)
    if (kind := _KINDS.get(row.kind)) is not None:
        if row.oid == table.oid:
            return SourceError(
                f"{copied}: it is {kind}, which has no rows of its own.",
                remedy="Name the tables behind it in source.tables.include.",
            )
        return SourceError(
            f"{copied}: its partition {row.schema}.{row.name} is {kind}, whose rows and changes "
            "are in another server.",
            remedy="Follow its other partitions by their own names instead, or detach this one: "
            f"ALTER TABLE … DETACH PARTITION {relation}.",
        )
    if row.is_foreign_temporary:
        return SourceError(
            f"{copied}: it is a temporary table of another session.",
            remedy="Take it out of source.tables.include.",
        )
    if not row.selectable:
        role = sql.Identifier(row.role).as_string(None)
        schema = sql.Identifier(row.schema).as_string(None)
        return SourceError(
            f"{copied}: role {row.role} may not read {row.schema}.{row.name}.",
            remedy=f"Run as its owner: GRANT USAGE ON SCHEMA {schema} TO {role}; "
            f"GRANT SELECT ON {relation} TO {role};",
        )
    if row.hides_rows:
        role = sql.Identifier(row.role).as_string(None)
        return SourceError(
            f"{copied}: row level security may hide rows of {row.schema}.{row.name} from role "
            f"{row.role}.",
            remedy=f"Run as a superuser: ALTER ROLE {role} BYPASSRLS; or make the role a member "
            "of the table's owner.",
        )
    return None


def _filters(
    conn: psycopg.Connection[Any], publications: Sequence[str]
) -> dict[tuple[str, str], str]:
    """The row filters by table: a row is sent if one of the publications sends it."""
    if not publications or conn.info.server_version < 150000:
        return {}
    found: defaultdict[tuple[str, str], list[str | None]] = defaultdict(list)
    for row in _rows(conn, _FILTERS, list(publications)):
        found[row.schema, row.name].append(row.filter)
    return {
        name: " OR ".join(f"({text})" for text in dict.fromkeys(filters) if text is not None)
        for name, filters in found.items()
        if None not in filters
    }


def _grouped(rows: Iterable[Any]) -> dict[int, list[Any]]:
    grouped: defaultdict[int, list[Any]] = defaultdict(list)
    for row in rows:
        grouped[row.table].append(row)
    return dict(grouped)


def _rows(conn: psycopg.Connection[Any], query: Any, parameter: Any) -> list[Any]:
    with conn.cursor(row_factory=namedtuple_row) as cursor:
        return cursor.execute(query, [parameter]).fetchall()
