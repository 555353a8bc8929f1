"""Cutting tables into chunks of about the same size. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from penstock.source.copy_plan import Chunk, CopyPlan
from penstock.source.postgres.snapshot.relations import CopyRelations, Relation

MOST_CHUNKS = 4096
"""A table has not many more chunks than this, beside one for each partition: they are larger then.

Every chunk is a row in the store and a task of Spark.
"""


def plan_copy(source: CopyRelations, chunk_bytes: int) -> CopyPlan:
    """Runs of blocks that hold about ``chunk_bytes`` each, their share of TOAST included.

    Every block is in just one of them, and the last of each relation has no end. A relation without
    blocks has one, too: rows may have come since its size was read.
    """
    size = max(chunk_bytes, -(-sum(r.bytes for r in source.relations) // MOST_CHUNKS), 1)
    chunks: list[Chunk] = []
    for relation in source.relations:
        for first, end in _runs(relation, size):
            chunks.append(
                Chunk(
                    table=source.table.oid,
                    number=len(chunks),
                    relation=relation.oid,
                    schema=relation.schema,
                    name=relation.name,
                    file=relation.file,
                    first_block=first,
                    end_block=end,
                    bytes=_bytes_before(relation, end) - _bytes_before(relation, first),
                )
            )
    return CopyPlan(source.table.oid, source.columns, source.condition, tuple(chunks))


def _runs(relation: Relation, size: int) -> Iterator[tuple[int, int | None]]:
    """First block, and the first block that is not in it any more."""
    count = max(1, min(-(-relation.bytes // size), relation.blocks))
    edges = [relation.blocks * number // count for number in range(count)]
    yield from zip(edges, [*edges[1:], None], strict=True)


def _bytes_before(relation: Relation, block: int | None) -> int:
    if block is None or not relation.blocks:
        return 0 if block == 0 else relation.bytes
    return relation.bytes * block // relation.blocks
