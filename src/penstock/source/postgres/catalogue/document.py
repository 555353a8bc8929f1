"""One query for all that the catalogue says of tables: its answer is one JSON document.

The same text is asked by us and, in the source, by the event triggers that log schema changes
(schema_tracking.py), so that both describe a table in the same words. catalogue_tables.py reads it.
``:tables`` stands for the oids; names are qualified where the search path holds pg_catalog alone.
"""

from __future__ import annotations

_TABLES = """
SELECT c.oid::bigint AS oid, n.nspname AS schema, c.relname AS name,
       c.relreplident::text AS replica_identity,
       (SELECT coalesce(array_agg(p.relid::oid::bigint ORDER BY p.relid::oid), '{}')
          FROM pg_partition_tree(c.oid) p WHERE p.relid <> c.oid AND c.relkind = 'p') AS partitions
  FROM pg_class c
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = ANY (:tables) AND c.relkind IN ('r', 'p')
 ORDER BY c.oid
"""

# From 18 on a column may be NOT NULL for new rows alone (NOT VALID); before, no constraint says so.
_NOT_NULL = """a.attnotnull AND NOT EXISTS (
           SELECT FROM pg_constraint k
            WHERE k.conrelid = a.attrelid AND k.contype = 'n' AND NOT k.convalidated
              AND a.attnum = ANY (k.conkey))"""

# attmissingval is what rows have that are older than a column, as the text of an array.
_COLUMNS = f"""
SELECT a.attrelid::bigint AS table, a.attnum, a.attname AS name, a.atttypid::bigint AS type,
       a.atttypmod AS typmod, {_NOT_NULL} AS not_null, pg_get_expr(d.adbin, d.adrelid) AS expr,
       a.attidentity::text AS identity, a.attgenerated::text AS generated,
       collation_schema.nspname AS collation_schema, c.collname AS collation_name,
       a.attmissingval::text AS missing,
       (SELECT format('%I.%I', n.nspname, s.relname)
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
 WHERE a.attrelid = ANY (:tables) AND a.attnum > 0 AND NOT a.attisdropped
 ORDER BY a.attrelid, a.attnum
"""  # noqa: S608 (a constant)

# Shortest unique key first: any will do, and it is what rows are found by.
_KEYS = f"""
SELECT i.indrelid::bigint AS table, i.indisprimary AS is_primary, i.indisreplident AS is_identity,
       i.indimmediate AND i.indpred IS NULL AND keys.names_all AND keys.not_null AS identifies,
       keys.names
  FROM pg_index i
 CROSS JOIN LATERAL (
       SELECT array_agg(a.attname::text ORDER BY k.place) AS names,
              bool_and(a.attname IS NOT NULL) AS names_all,
              bool_and({_NOT_NULL}) AS not_null
         FROM unnest(i.indkey::int2[]) WITH ORDINALITY AS k (attnum, place)
         LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.attnum
        WHERE k.place <= i.indnkeyatts
       ) AS keys
 WHERE i.indrelid = ANY (:tables) AND i.indisunique AND i.indisvalid
 ORDER BY i.indrelid, i.indnkeyatts, keys.names
"""  # noqa: S608 (a constant)

# The head of an index's definition names the index and the table; both may be others elsewhere.
_INDEXES = """
SELECT i.indrelid::bigint AS table, i.indexrelid::bigint AS oid, x.relname AS name,
       i.indisunique AS is_unique,
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
 CROSS JOIN LATERAL (SELECT format('%I.%I ', n.nspname, t.relname) AS text) AS head
 WHERE i.indrelid = ANY (:tables) AND i.indisvalid AND NOT i.indisprimary
   AND NOT EXISTS (SELECT FROM pg_constraint k
                    WHERE k.conrelid = i.indrelid AND k.conindid = i.indexrelid
                      AND k.contype IN ('p', 'u', 'x'))
 ORDER BY i.indrelid, x.relname
"""

_CONSTRAINTS = """
SELECT k.conrelid::bigint AS table, k.oid::bigint AS oid, k.conname AS name,
       k.contype::text AS kind, pg_get_constraintdef(k.oid) AS definition,
       CASE WHEN k.contype = 'u' AND NOT k.condeferrable
            THEN (SELECT array_agg(a.attname::text ORDER BY u.place)
                    FROM unnest(k.conkey) WITH ORDINALITY AS u (attnum, place)
                    JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = u.attnum)
            ELSE '{}' END AS key,
       rn.nspname AS referenced_schema, r.relname AS referenced_name
  FROM pg_constraint k
  LEFT JOIN pg_class r ON r.oid = k.confrelid AND k.contype = 'f'
  LEFT JOIN pg_namespace rn ON rn.oid = r.relnamespace
 WHERE k.conrelid = ANY (:tables) AND k.contype IN ('c', 'u', 'x', 'f')
 ORDER BY k.conrelid, k.conname
"""

# From the columns' types down to the last one: elements, bases, subtypes, attributes.
_NEEDED = """
SELECT DISTINCT a.atttypid AS oid FROM pg_attribute a
 WHERE a.attrelid = ANY (:tables) AND a.attnum > 0 AND NOT a.attisdropped
UNION
SELECT part.oid
  FROM needed
  JOIN pg_type t ON t.oid = needed.oid
 CROSS JOIN LATERAL (
       SELECT t.typelem WHERE t.typelem <> 0
       UNION ALL SELECT t.typbasetype WHERE t.typtype = 'd'
       UNION ALL SELECT r.rngsubtype FROM pg_range r WHERE r.rngtypid = t.oid
       UNION ALL SELECT r.rngtypid FROM pg_range r WHERE r.rngmultitypid = t.oid
       UNION ALL SELECT a.atttypid FROM pg_attribute a
                  WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0
                    AND NOT a.attisdropped
       ) AS part (oid)
"""

_ALL_TYPES = "SELECT oid FROM pg_type WHERE typtype IN ('e', 'd', 'r', 'c')"

# Those that somebody could create.
_TYPES = """
SELECT t.oid::bigint AS oid, n.nspname AS schema, t.typname AS name, t.typtype::text AS kind,
       coalesce((SELECT array_agg(e.enumlabel::text ORDER BY e.enumsortorder)
                   FROM pg_enum e WHERE e.enumtypid = t.oid), '{}') AS labels,
       coalesce(r.rngsubtype, t.typbasetype)::bigint AS base,
       t.typtypmod AS typmod, t.typnotnull AS not_null, pg_get_expr(t.typdefaultbin, 0) AS expr,
       attributes.names, attributes.types, attributes.typmods,
       coalesce((SELECT array_agg(format('CONSTRAINT %I %s', k.conname,
                                         pg_get_constraintdef(k.oid)) ORDER BY k.conname)
                   FROM pg_constraint k
                  WHERE k.contypid = t.oid AND k.contype = 'c' AND k.convalidated
                ), '{}') AS constraints,
       collation_schema.nspname AS collation_schema, c.collname AS collation_name,
       coalesce((SELECT m.typname FROM pg_type m WHERE m.oid = r.rngmultitypid), '') AS multirange
  FROM needed
 -- One by one: nobody knows how few they are.
 CROSS JOIN LATERAL (
       SELECT * FROM pg_type WHERE pg_type.oid = needed.oid
          AND typtype IN ('e', 'd', 'r', 'c') OFFSET 0
       ) AS t
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
 WHERE (t.typtype <> 'c' OR relation.relkind = 'c')
   AND n.nspname <> 'information_schema' AND n.nspname NOT LIKE 'pg\\_%'
   AND NOT EXISTS (SELECT FROM pg_depend d
                    WHERE d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e')
 ORDER BY t.oid
"""

_USES = """
SELECT columns.type AS oid, columns.typmod FROM columns
UNION SELECT types.base, types.typmod FROM types WHERE types.base <> 0
UNION SELECT part.oid, part.typmod
        FROM types CROSS JOIN LATERAL unnest(types.types, types.typmods) AS part (oid, typmod)
"""

_TYPE_NAMES = """
SELECT used.oid::bigint AS oid, used.typmod, n.nspname AS schema, t.typname AS name,
       format_type(t.oid, -1) AS bare, format_type(t.oid, used.typmod) AS shown,
       element.oid IS NOT NULL AS is_array, coalesce(x.extname, '') AS extension,
       coalesce(r.rngtypid, t.oid)::bigint AS made
  FROM uses AS used
 CROSS JOIN LATERAL (SELECT * FROM pg_type WHERE pg_type.oid = used.oid::oid OFFSET 0) AS written
  LEFT JOIN pg_type element ON element.oid = written.typelem AND element.typarray = written.oid
  JOIN pg_type t ON t.oid = coalesce(element.oid, written.oid)
  JOIN pg_namespace n ON n.oid = t.typnamespace
  LEFT JOIN pg_range r ON r.rngmultitypid = t.oid
  LEFT JOIN pg_depend d ON d.classid = 'pg_type'::regclass AND d.objid = t.oid AND d.deptype = 'e'
                       AND d.refclassid = 'pg_extension'::regclass
  LEFT JOIN pg_extension x ON x.oid = d.refobjid
 ORDER BY used.oid, used.typmod
"""


def _document(needed: str) -> str:
    parts = {
        "tables": _TABLES,
        "columns": _COLUMNS,
        "keys": _KEYS,
        "indexes": _INDEXES,
        "constraints": _CONSTRAINTS,
        "needed": needed,
        "types": _TYPES,
        "uses": _USES,
        "type_names": _TYPE_NAMES,
    }
    told = [name for name in parts if name not in ("needed", "uses")]
    lists = ",\n".join(
        f"'{name}', (SELECT coalesce(json_agg(item), '[]') FROM {name} AS item)"  # noqa: S608
        for name in told
    )
    # In the order in which they use each other; those that are used twice are worked out once.
    bodies = ",\n".join(
        f"{name} {'(oid) ' if name == 'needed' else ''}AS MATERIALIZED ({body})"
        for name, body in parts.items()
    )
    return f"WITH RECURSIVE {bodies}\nSELECT json_build_object({lists})"


TABLES = _document(_NEEDED)
"""The tables of ``:tables`` with all that belongs to them."""

TYPES = _document(_ALL_TYPES)
"""The same, with every type of the database that somebody could create."""


def as_function(document: str, tables: str) -> str:
    """For the body of a function whose argument ``tables`` is an array of oids."""
    return document.replace(":tables", tables)


def as_query(document: str) -> bytes:
    """For psycopg: with one parameter, the oids. Answers with the document's text."""
    text = document.replace("%", "%%").replace(":tables", "%(tables)s::oid[]")
    return f"SELECT ({text})::text".encode()
