"""Chunks of all tables in one queue."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.pipeline.copy.copy_queue import MOST_CHUNKS, CopyQueue
from penstock.source.copy_plan import Chunk

UNIT = 100


def chunk(table: int, number: int, size: int = UNIT) -> Chunk:
    return Chunk(table, number, table, "public", f"t{table}", 1, number, None, size)


def taken(queue: CopyQueue, *held_back: int) -> list[tuple[int, int]]:
    unit = queue.take(held_back)
    return [] if unit is None else [(c.table, c.number) for c in unit.chunks]


def test_tables_take_turns() -> None:
    queue = CopyQueue(UNIT)
    queue.add(chunk(1, number) for number in range(3))
    queue.add([chunk(2, 0)])
    assert [taken(queue) for _ in range(5)] == [[(1, 0)], [(2, 0)], [(1, 1)], [(1, 2)], []]


def test_small_chunks_of_many_tables_share_a_task() -> None:
    queue = CopyQueue(UNIT)
    queue.add(chunk(table, 0, 30) for table in range(5))
    assert taken(queue) == [(0, 0), (1, 0), (2, 0)]
    assert taken(queue) == [(3, 0), (4, 0)]


def test_a_large_chunk_does_not_hold_up_small_ones() -> None:
    queue = CopyQueue(UNIT)
    queue.add([chunk(1, 0, 30), chunk(2, 0, 100), chunk(3, 0, 30)])
    assert taken(queue) == [(1, 0), (3, 0)]
    assert taken(queue) == [(2, 0)]


def test_empty_tables_do_not_make_a_task_endless() -> None:
    queue = CopyQueue(UNIT)
    queue.add(chunk(table, 0, 0) for table in range(MOST_CHUNKS + 1))
    assert len(taken(queue)) == MOST_CHUNKS
    assert len(taken(queue)) == 1


def test_held_back_and_dropped_tables_give_nothing() -> None:
    queue = CopyQueue(UNIT)
    queue.add([chunk(1, 0), chunk(2, 0), chunk(3, 0)])
    assert taken(queue, 1) == [(2, 0)]
    queue.drop([3])
    assert taken(queue, 1) == []
    assert taken(queue) == [(1, 0)]


def test_what_failed_comes_first() -> None:
    queue = CopyQueue(UNIT)
    queue.add(chunk(1, number) for number in range(3))
    unit = queue.take()
    assert unit is not None
    assert queue.is_under_way(1)
    queue.done(unit)
    queue.again(unit.chunks)
    assert not queue.is_under_way(1)
    assert [taken(queue) for _ in range(3)] == [[(1, 0)], [(1, 1)], [(1, 2)]]


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(0, 150)), max_size=40),
    st.lists(st.booleans(), max_size=60),
)
def test_every_chunk_is_copied_once(sizes: list[tuple[int, int]], fails: list[bool]) -> None:
    chunks = [chunk(table, number, size) for number, (table, size) in enumerate(sizes)]
    queue = CopyQueue(UNIT)
    queue.add(chunks)
    outcomes = iter(fails)
    done: list[Chunk] = []
    while (unit := queue.take()) is not None:
        queue.done(unit)
        if next(outcomes, False):
            queue.again(unit.chunks)
        else:
            done += unit.chunks
    assert sorted(done, key=lambda c: c.number) == chunks
    assert queue.tables == frozenset()
