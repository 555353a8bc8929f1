"""Tables whose rows a snapshot no longer shows: TRUNCATE, rewrites and partitions that come or go
do not wait for readers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from penstock.model.table_name import TableName
from penstock.verify.report import TableComparison
from penstock.verify.snapshot import ComparedSnapshot

# The catalogue as the snapshot sees it names the files and partitions of then; the functions name
# those of now.
_REWRITTEN = """
WITH RECURSIVE tree (schema, name, root, oid) AS (
    SELECT n.nspname, c.relname, c.oid, c.oid
      FROM unnest(%s::text[], %s::text[]) AS wanted (schema, name)
      JOIN pg_namespace n ON n.nspname = wanted.schema
      JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = wanted.name
     UNION ALL
    SELECT tree.schema, tree.name, tree.root, i.inhrelid
      FROM tree
      JOIN pg_class c ON c.oid = tree.oid AND c.relkind = 'p'
      JOIN pg_inherits i ON i.inhparent = tree.oid
)
SELECT tree.schema, tree.name
  FROM tree
  JOIN pg_class part ON part.oid = tree.oid
 GROUP BY tree.schema, tree.name, tree.root
HAVING bool_or(part.relfilenode <> 0
               AND part.relfilenode IS DISTINCT FROM pg_relation_filenode(part.oid))
    OR bool_or(part.oid = tree.root AND part.relkind = 'p')
       AND array_agg(part.oid ORDER BY part.oid) <>
           ARRAY(SELECT relid::oid FROM pg_partition_tree(tree.root) ORDER BY relid::oid)
"""


def rewritten_since(snapshot: ComparedSnapshot, tables: Iterable[TableName]) -> set[TableName]:
    """Those of the tables that were truncated or rewritten after the snapshot was taken, or whose
    partitions are others.
    """
    names = list(tables)
    with snapshot.guard("looking for truncated tables"):
        rows = snapshot.leader.execute(
            _REWRITTEN, [[table.schema for table in names], [table.name for table in names]]
        ).fetchall()
    return {TableName(schema, name) for schema, name in rows}


def without_rewritten(
    compared: Iterable[TableComparison], changed: Collection[str]
) -> list[TableComparison]:
    """The results, without those of tables (by their names in the source) that were changed."""
    reason = (
        "it was truncated or rewritten while it was being compared, and Postgres does not keep its "
        "old rows for that; run the command again"
    )
    return [
        TableComparison(result.source, result.target, not_compared=reason)
        if result.source in changed
        else result
        for result in compared
    ]
