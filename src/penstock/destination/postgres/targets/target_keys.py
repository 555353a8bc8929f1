"""The keys of targets that we made: they go before rows are copied, and come back after that."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from psycopg import errors, sql

from penstock.destination.postgres.sessions.session import Connection
from penstock.destination.postgres.targets.create_table import create_key_index, primary_key
from penstock.model.table_definition import TableDefinition

# What ON CONFLICT takes: an index over plain columns and all rows that is checked at once.
_UNIQUE = """
SELECT i.indrelid::bigint, array_agg(a.attname::text)
  FROM pg_index i
 CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
  LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
 WHERE i.indrelid = ANY (%s::oid[]) AND i.indisunique AND i.indisvalid AND i.indimmediate
   AND NOT i.indisexclusion AND i.indpred IS NULL AND k.place <= i.indnkeyatts
 GROUP BY i.indrelid, i.indexrelid
HAVING bool_and(a.attname IS NOT NULL)
"""

_PRIMARY = "SELECT conname::text FROM pg_constraint WHERE conrelid = %s::oid AND contype = 'p'"

_KEY_INDEXES = """
SELECT n.nspname, x.relname, array_agg(a.attname::text)
  FROM pg_index i
  JOIN pg_class x ON x.oid = i.indexrelid
  JOIN pg_namespace n ON n.oid = x.relnamespace
 CROSS JOIN LATERAL unnest(i.indkey::int2[]) AS k (attnum)
  JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
 WHERE i.indrelid = %s::oid AND i.indisunique AND i.indpred IS NULL
   AND NOT 0 = ANY (i.indkey)
   AND NOT EXISTS (SELECT FROM pg_constraint c WHERE c.conindid = i.indexrelid)
 GROUP BY i.indexrelid, n.nspname, x.relname
"""


def unique_columns(conn: Connection, targets: Sequence[int]) -> dict[int, list[frozenset[str]]]:
    """The columns of the unique indexes of each target (by oid) that rows can be found by."""
    unique: dict[int, list[frozenset[str]]] = {}
    for oid, columns in conn.execute(_UNIQUE, [list(targets)]):
        unique.setdefault(oid, []).append(frozenset(columns))
    return unique


def shared_keys(
    wanted: TableDefinition, unique: Collection[frozenset[str]]
) -> tuple[tuple[str, ...], ...]:
    """The keys beside the merge key that both sides have; ``unique`` are the target's."""
    keys = {
        wanted.primary_key,
        *(index.key for index in wanted.indexes),
        *(constraint.key for constraint in wanted.constraints),
    }
    merge_key = set(wanted.merge_key)
    return tuple(sorted(key for key in keys if set(key) in unique and set(key) != merge_key))


def make_key(conn: Connection, target: int, wanted: TableDefinition) -> None:
    """What rows are found by, unless it is there."""
    key = frozenset(wanted.merge_key)
    if not key or key in unique_columns(conn, [target]).get(target, []):
        return
    if key == set(wanted.primary_key):
        make_primary_key(conn, target, wanted)
    else:
        conn.execute(create_key_index(wanted))


def make_primary_key(conn: Connection, target: int, wanted: TableDefinition) -> None:
    if wanted.primary_key and conn.execute(_PRIMARY, [target]).fetchone() is None:
        conn.execute(
            sql.SQL("ALTER TABLE {} ADD {}").format(_name(wanted), primary_key(wanted)),
        )


def drop_keys(conn: Connection, target: int, wanted: TableDefinition) -> None:
    """Drop primary key and key index. One that a foreign key of somebody else needs stays."""
    statements = [
        sql.SQL("ALTER TABLE {} DROP CONSTRAINT {}").format(_name(wanted), sql.Identifier(name))
        for (name,) in conn.execute(_PRIMARY, [target])
    ]
    if set(wanted.merge_key) != set(wanted.primary_key):
        statements += [
            sql.SQL("DROP INDEX {}").format(sql.Identifier(schema, name))
            for schema, name, columns in conn.execute(_KEY_INDEXES, [target])
            if set(columns) == set(wanted.merge_key)
        ]
    for statement in statements:
        try:
            with conn.transaction():
                conn.execute(statement)
        except errors.DependentObjectsStillExist:
            continue


def _name(wanted: TableDefinition) -> sql.Identifier:
    return sql.Identifier(wanted.schema, wanted.name)
