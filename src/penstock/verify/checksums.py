"""Checksums of tables, computed in the server.

Every row becomes one text, and its md5 decides to which chunk of the table the row belongs and what
it adds to that chunk's checksum. Checksums are sums: neither the order of rows nor the place where
a server keeps them matters. So each side reads its table in the order of its own blocks, in pieces
that several sessions take, and no sort order (or collation) has to agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import psycopg
from psycopg import sql

from penstock.model.table_name import TableName

# A chunk is about this much of a table; the md5 digits that number it are limited to four.
_CHUNK_BYTES = 1024 * 1024
_MOST_DIGITS = 4
# What one statement reads: enough to make its cost vanish, and not more than this many of them.
_PIECE_BLOCKS = 8192
_MOST_PIECES = 256


@dataclass(frozen=True)
class ComparedRelation:
    """A table as one side stores it. A partitioned one has the blocks of its largest partition."""

    name: TableName
    is_partitioned: bool
    blocks: int
    size: int

    @property
    def from_clause(self) -> sql.Composed:
        """What follows FROM. A table that others inherit from stands for its own rows alone."""
        only = sql.SQL("" if self.is_partitioned else "ONLY ")
        return sql.Composed([only, sql.Identifier(*self.name)])

    def pieces(self) -> list[sql.Composed]:
        """Conditions that part the table into runs of blocks; the last one is open."""
        step = max(_PIECE_BLOCKS, -(-self.blocks // _MOST_PIECES))
        starts = range(0, max(self.blocks, 1), step)
        return [
            sql.SQL("ctid >= {}::tid").format(sql.Literal(f"({start},0)"))
            + (
                sql.SQL(" AND ctid < {}::tid").format(sql.Literal(f"({start + step},0)"))
                if start + step < self.blocks
                else sql.SQL("")
            )
            for start in starts
        ]


_RELATIONS = """
SELECT w.schema, w.name, c.relkind = 'p',
       leaves.largest / current_setting('block_size')::bigint, leaves.total
  FROM unnest(%s::text[], %s::text[]) AS w (schema, name)
  JOIN pg_namespace n ON n.nspname = w.schema
  JOIN pg_class c ON c.relnamespace = n.oid AND c.relname = w.name AND c.relkind IN ('r', 'p')
 CROSS JOIN LATERAL (
    SELECT coalesce(max(pg_relation_size(leaf)), 0)::bigint AS largest,
           coalesce(sum(pg_relation_size(leaf)), 0)::bigint AS total
      FROM (SELECT c.oid WHERE c.relkind = 'r'
            UNION ALL
            SELECT relid FROM pg_partition_tree(c.oid) WHERE isleaf AND c.relkind = 'p'
           ) AS l (leaf)
 ) AS leaves
"""


def find_relations(
    conn: psycopg.Connection[Any], names: Sequence[TableName]
) -> dict[TableName, ComparedRelation]:
    """Those of the tables that exist."""
    rows = conn.execute(_RELATIONS, [[n.schema for n in names], [n.name for n in names]])
    found = (ComparedRelation(TableName(schema, name), *rest) for schema, name, *rest in rows)
    return {relation.name: relation for relation in found}


def chunk_digits(*relations: ComparedRelation) -> int:
    """How many hexadecimal digits number the chunks of a table."""
    size, digits = max(relation.size for relation in relations), 0
    while size > _CHUNK_BYTES and digits < _MOST_DIGITS:
        size, digits = size // 16, digits + 1
    return digits


def text_of(column: str) -> sql.Composed:
    """A value as its type writes it; null stays null. A cast may be somebody's own, and leave out
    in what two values differ; that of char(n) leaves out blanks. A composite of nulls alone IS
    NULL, and is a value.
    """
    return sql.SQL("CASE WHEN {0} IS DISTINCT FROM NULL THEN concat({0}) END").format(
        sql.Identifier(column)
    )


def texts(columns: Iterable[str]) -> sql.Composed:
    """The values as an array of texts."""
    return sql.SQL("ARRAY[{}]::text[]").format(sql.SQL(", ").join(map(text_of, columns)))


def digest(columns: Sequence[str]) -> sql.Composed:
    """The md5 of a row, whatever the database's encoding. The text of a record is unambiguous, and
    has each value as its type writes it.
    """
    names = sql.SQL(", ").join(map(sql.Identifier, columns))
    return sql.SQL("md5(convert_to(ROW({})::text, 'UTF8'))").format(names)


def chunk_of(digits: int) -> sql.Composed:
    """The chunk of a row, from ``h``: other digits than those that its checksum is made of."""
    return sql.SQL("substr(h, 17, {})").format(sql.Literal(digits))


def checksum_query(
    relation: ComparedRelation, columns: Sequence[str], digits: int, piece: sql.Composed
) -> sql.Composed:
    """Chunk, number of rows and checksum of every chunk, of one piece of the table."""
    # OFFSET 0 keeps the planner from computing each md5 twice.
    return sql.SQL(
        "SELECT {}, count(*), sum(('x' || left(h, 16))::bit(64)::bigint)::text"
        " FROM (SELECT {} AS h FROM {} WHERE {} OFFSET 0) AS hashed GROUP BY 1"
    ).format(chunk_of(digits), digest(columns), relation.from_clause, piece)


@dataclass
class Sums:
    """Rows and checksum of every chunk, added up over pieces."""

    chunks: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, rows: Iterable[tuple[Any, ...]]) -> None:
        for chunk, count, total in rows:
            held_count, held_total = self.chunks.get(chunk, (0, 0))
            self.chunks[chunk] = (held_count + count, held_total + int(total))

    @property
    def rows(self) -> int:
        return sum(count for count, _ in self.chunks.values())

    def rows_of(self, chunk: str) -> int:
        return self.chunks.get(chunk, (0, 0))[0]

    def differing(self, other: Sums) -> list[str]:
        """The chunks that are not the same, those with few rows first."""
        chunks = self.chunks.keys() | other.chunks.keys()
        different = [c for c in chunks if self.chunks.get(c) != other.chunks.get(c)]
        return sorted(different, key=lambda c: (self.rows_of(c) + other.rows_of(c), c))
