"""Tables whose rows a snapshot no longer shows: TRUNCATE and rewrites do not wait for readers."""

from __future__ import annotations

from collections.abc import Iterable

from penstock.model.table_name import TableName
from penstock.verify.snapshot import Snapshot

# The catalogue as the snapshot sees it names the file of then; the function names that of now.
_REWRITTEN = """
SELECT n.nspname, c.relname
  FROM unnest(%s::text[], %s::text[]) AS wanted (schema, name)
  JOIN pg_namespace n ON n.nspname = wanted.schema
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
 WHERE EXISTS (SELECT FROM pg_class part
                WHERE (part.oid = c.oid
                       OR part.oid IN (SELECT relid FROM pg_partition_tree(c.oid)))
                  AND part.relfilenode <> 0
                  AND part.relfilenode IS DISTINCT FROM pg_relation_filenode(part.oid))
"""


def rewritten_since(snapshot: Snapshot, tables: Iterable[TableName]) -> set[TableName]:
    """Those of the tables that were truncated or rewritten after the snapshot was taken."""
    names = list(tables)
    with snapshot.guard("looking for truncated tables"):
        rows = snapshot.leader.execute(
            _REWRITTEN, [[table.schema for table in names], [table.name for table in names]]
        ).fetchall()
    return {TableName(schema, name) for schema, name in rows}
