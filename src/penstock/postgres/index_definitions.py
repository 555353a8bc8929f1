"""Indexes and constraints of tables, as the catalogue writes them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import psycopg

from penstock.table_definition import ConstraintDefinition, ConstraintKind, IndexDefinition

# The head of an index's definition names the index and the table; both may be others elsewhere.
_INDEXES = """
SELECT i.indrelid::bigint AS table, x.relname AS name, i.indisunique AS is_unique,
       substr(whole.text, strpos(whole.text, head.text) + length(head.text)) AS definition,
       CASE WHEN i.indisunique AND i.indimmediate AND i.indpred IS NULL AND NOT 0 = ANY (i.indkey)
            THEN (SELECT array_agg(a.attname::text ORDER BY k.place)
                    FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
                    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
                   WHERE k.place <= i.indnkeyatts)
            ELSE '{}' END AS key
  FROM pg_index i
  JOIN pg_class x ON x.oid = i.indexrelid
  JOIN pg_class t ON t.oid = i.indrelid
  JOIN pg_namespace n ON n.oid = t.relnamespace
 CROSS JOIN LATERAL (SELECT pg_get_indexdef(i.indexrelid) AS text) AS whole
 CROSS JOIN LATERAL (SELECT format('%%I.%%I ', n.nspname, t.relname) AS text) AS head
 WHERE i.indrelid = ANY (%s::oid[]) AND i.indisvalid AND NOT i.indisprimary
   AND NOT EXISTS (SELECT FROM pg_constraint k
                    WHERE k.conindid = i.indexrelid AND k.contype IN ('p', 'u', 'x'))
 ORDER BY i.indrelid, x.relname
"""

_CONSTRAINTS = """
SELECT k.conrelid::bigint AS table, k.conname AS name, k.contype::text AS kind,
       pg_get_constraintdef(k.oid) AS definition,
       CASE WHEN k.contype = 'u' AND NOT k.condeferrable
            THEN (SELECT array_agg(a.attname::text ORDER BY u.place)
                    FROM unnest(k.conkey) WITH ORDINALITY AS u (attnum, place)
                    JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.attnum)
            ELSE '{}' END AS key,
       rn.nspname AS referenced_schema, r.relname AS referenced_name
  FROM pg_constraint k
  LEFT JOIN pg_class r ON r.oid = k.confrelid AND k.contype = 'f'
  LEFT JOIN pg_namespace rn ON rn.oid = r.relnamespace
 WHERE k.conrelid = ANY (%s::oid[]) AND k.contype IN ('c', 'u', 'x', 'f')
 ORDER BY k.conrelid, k.conname
"""

_CONSTRAINT_KINDS: dict[str, ConstraintKind] = {
    "c": "check",
    "u": "unique",
    "x": "exclude",
    "f": "foreign",
}


def indexes_of(
    conn: psycopg.Connection[Any], tables: Sequence[int]
) -> dict[int, list[IndexDefinition]]:
    """The indexes of each table (by oid) that no constraint made."""
    found: dict[int, list[IndexDefinition]] = {}
    for table, name, is_unique, definition, key in conn.execute(_INDEXES, [list(tables)]):
        found.setdefault(table, []).append(
            IndexDefinition(name, is_unique, definition, tuple(key or ()))
        )
    return found


def constraints_of(
    conn: psycopg.Connection[Any], tables: Sequence[int]
) -> dict[int, list[ConstraintDefinition]]:
    """The constraints of each table (by oid), but for NOT NULL and the primary key."""
    found: dict[int, list[ConstraintDefinition]] = {}
    for table, name, kind, definition, key, *referenced in conn.execute(
        _CONSTRAINTS, [list(tables)]
    ):
        references = (referenced[0], referenced[1]) if referenced[1] else None
        found.setdefault(table, []).append(
            ConstraintDefinition(
                name, _CONSTRAINT_KINDS[kind], definition, tuple(key or ()), references
            )
        )
    return found
