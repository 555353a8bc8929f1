"""Chunks cover a table once, whatever its relations are like."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.pg_types import builtin_type
from penstock.model.table_schema import ColumnSchema, TableSchema
from penstock.source.copy_plan import Chunk, CopyPlan
from penstock.source.postgres.snapshot.plan import MOST_CHUNKS, plan_copy
from penstock.source.postgres.snapshot.relations import CopyRelations, Relation

BLOCK = 8192
MIB = 1024 * 1024


def source(*sizes: tuple[int, int]) -> CopyRelations:
    """A table whose relations have these blocks, and these bytes of TOAST."""
    number = builtin_type(20)
    assert number is not None
    relations = tuple(
        Relation(100 + place, "public", f"p{place}", 500 + place, blocks, blocks * BLOCK + toast)
        for place, (blocks, toast) in enumerate(sizes)
    )
    table = TableSchema(7, "public", "t", "d", (ColumnSchema("id", number),))
    return CopyRelations(table, ("bigint",), len(sizes) != 1, relations, "id > 0", "id < 9")


def chunks_of(plan: CopyPlan, relation: int) -> list[Chunk]:
    return [chunk for chunk in plan.chunks if chunk.relation == relation]


relation_sizes = st.tuples(
    st.one_of(st.integers(0, 40), st.integers(0, 2**32 - 2)),
    st.one_of(st.just(0), st.integers(0, 2**45)),
)


@given(st.lists(relation_sizes, max_size=5), st.integers(1, 2**36))
def test_every_block_is_in_one_chunk(sizes: list[tuple[int, int]], chunk_bytes: int) -> None:
    table = source(*sizes)
    plan = plan_copy(table, chunk_bytes)
    assert [chunk.number for chunk in plan.chunks] == list(range(len(plan.chunks)))
    assert len(plan.chunks) <= MOST_CHUNKS + len(sizes)
    assert plan.bytes == sum(relation.bytes for relation in table.relations)
    for relation in table.relations:
        chunks = chunks_of(plan, relation.oid)
        edges = [chunk.first_block for chunk in chunks]
        assert edges[0] == 0
        assert [chunk.end_block for chunk in chunks] == [*edges[1:], None]
        # Runs without a block would be read for nothing.
        assert edges == sorted(set(edges))
        assert not relation.blocks or edges[-1] < relation.blocks
        assert {chunk.file for chunk in chunks} == {relation.file}


@given(st.integers(1, 10**6), st.integers(0, 2**36), st.integers(1, 256))
def test_chunks_are_of_the_size_that_was_asked_for(blocks: int, toast: int, mib: int) -> None:
    plan = plan_copy(source((blocks, toast)), mib * MIB)
    size = max(mib * MIB, -(-plan.bytes // MOST_CHUNKS))
    a_block = -(-plan.bytes // blocks)
    # One block cannot be cut, however much TOAST belongs to it.
    assert all(chunk.bytes <= size + a_block for chunk in plan.chunks)
    if len(plan.chunks) > 1:
        assert all(chunk.bytes >= size // 2 - a_block for chunk in plan.chunks)


def test_toast_makes_chunks_of_fewer_blocks() -> None:
    bare, toasted = (plan_copy(source((1024, toast)), MIB) for toast in (0, 56 * MIB))
    assert len(bare.chunks) == 8
    assert len(toasted.chunks) == 64
    assert toasted.chunks[0].end_block == 16


def test_a_relation_without_blocks_is_one_open_chunk() -> None:
    (chunk,) = plan_copy(source((0, 0)), MIB).chunks
    assert (chunk.first_block, chunk.end_block, chunk.bytes) == (0, None, 0)
    assert plan_copy(source(), MIB).chunks == ()


def test_a_plan_says_what_to_read_and_survives_json() -> None:
    plan = plan_copy(source((3, 0), (5, 0)), 2 * BLOCK)
    assert plan.table == 7
    assert plan.columns == ("id",)
    assert plan.where == "(id > 0\n) AND (id < 9\n)"
    assert [chunk.name for chunk in plan.chunks] == ["p0", "p0", "p1", "p1", "p1"]
    assert CopyPlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
