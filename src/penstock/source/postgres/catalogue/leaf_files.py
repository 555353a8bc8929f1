"""The files of partitions, which tell that one was emptied."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import psycopg

from penstock.source.contract import LeafFile
from penstock.source.postgres.source_errors import source_errors

# Not by pg_partition_tree(), which would wait for whoever has a partition locked.
_LEAVES = """
WITH RECURSIVE tree (root, oid) AS (
    SELECT c.oid, c.oid FROM pg_class c WHERE c.oid = ANY (%s::oid[]) AND c.relkind = 'p'
    UNION ALL
    SELECT tree.root, i.inhrelid FROM tree JOIN pg_inherits i ON i.inhparent = tree.oid
)
SELECT tree.root::bigint, c.oid::bigint, c.relfilenode::bigint, c.xmin::text::bigint
  FROM tree JOIN pg_class c ON c.oid = tree.oid
 WHERE c.relkind = 'r'
"""


def read_leaf_files(
    conn: psycopg.Connection[Any], tables: Collection[int]
) -> dict[int, dict[int, LeafFile]]:
    """By root and partition, of those of the tables that have partitions."""
    found: dict[int, dict[int, LeafFile]] = {}
    with source_errors("looking at partitions"):
        for root, leaf, file, xid in conn.execute(_LEAVES, [list(tables)]):
            found.setdefault(root, {})[leaf] = LeafFile(file, xid)
    return found
