"""A destination that stands still: capture goes on up to its limit, and batches grow after it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from penstock.changelog.changelog import Listing
from penstock.destination.contract import Receipt
from penstock.destination.memory import MemoryDestination, forget, memory_store
from penstock.model.lsn import NOTHING, Frontier
from penstock.model.watermarks import Watermarks
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.pipelines import pipeline_on

ROW_BYTES = 8 * 1024
BATCH_BYTES = 512 * 1024
LOG_BYTES = 8 * 1024 * 1024

commit_to_memory = MemoryDestination.commit


class Gate:
    """Holds commits of the memory destination back, and remembers their frontiers."""

    def __init__(self) -> None:
        self._open = threading.Event()
        self.reached = threading.Event()
        self.frontiers: list[Frontier] = []

    def release(self) -> None:
        self._open.set()

    def commit(
        self,
        destination: MemoryDestination,
        receipts: Sequence[Receipt],
        watermarks: Watermarks,
    ) -> None:
        self.reached.set()
        assert self._open.wait(120)
        commit_to_memory(destination, receipts, watermarks)
        self.frontiers.append(watermarks.frontier)


@pytest.fixture
def gate(pipeline: PipelineUnderTest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate()

    def commit(destination: MemoryDestination, *args: Any) -> None:
        gate.commit(destination, *args)

    monkeypatch.setattr(MemoryDestination, "commit", commit)
    yield gate
    gate.release()
    forget(pipeline.name)


def test_a_backlog_fills_the_log_and_drains_in_large_batches(
    pipeline: PipelineUnderTest, gate: Gate, spark: SparkSession
) -> None:
    pipeline.configure(
        destination={"type": "memory"},
        batch={"max_bytes": BATCH_BYTES, "max_growth": 4, "buffer_bytes": "64 KiB"},
        segment_bytes="64 KiB",
        max_bytes=LOG_BYTES,
        grace=0,
    )
    pipeline.execute("CREATE TABLE items (id serial PRIMARY KEY, filler text)")
    pipeline.subscribe()
    store = memory_store(pipeline.name)
    stop = threading.Event()
    runner = pipeline_on(spark, pipeline.config, pipeline.file)
    with ThreadPoolExecutor(1) as pool, psycopg.connect(pipeline.url, autocommit=True) as conn:
        future = pool.submit(runner.run, stop.is_set)

        def wait(condition: Callable[[], bool], what: str) -> None:
            wait_until(lambda: future.done() or condition(), what)
            assert not future.done(), future.exception()

        try:
            rows = insert(conn, 1)
            wait(gate.reached.is_set, "the first batch is written")
            # Nothing is delivered; capture goes on, until the log is full.
            while report(pipeline).get("state") != "paused":
                assert rows * ROW_BYTES < 20 * LOG_BYTES
                rows += insert(conn, 16)
            full, before = pipeline.log.list(), None
            while before is None or full.segments != before.segments:
                assert rows * ROW_BYTES < 20 * LOG_BYTES, "the log grows on"
                rows += insert(conn, 50)
                next_report(pipeline)
                full, before = pipeline.log.list(), full
            assert report(pipeline)["state"] == "paused"
            assert full.total_bytes >= LOG_BYTES
            assert store.changes == []

            gate.release()
            wait(lambda: len(store.changes) == rows, "all is delivered")
        finally:
            gate.release()
            stop.set()
        future.result()
    assert [(change.new or {})["id"] for change in store.changes] == [
        str(number) for number in range(1, rows + 1)
    ]
    # The limit grows to four times what it was; a batch ends with the segment that brings it there.
    taken = [*batch_segments(full, gate.frontiers)]
    assert max(map(sum, taken)) >= 4 * BATCH_BYTES
    assert all(sum(sizes[:-1]) < 4 * BATCH_BYTES for sizes in taken)


def batch_segments(listing: Listing, frontiers: Sequence[Frontier]) -> Iterator[list[int]]:
    """The sizes of the listed segments that each batch took."""
    before = NOTHING
    for frontier in frontiers:
        yield [
            listing.sizes[name] for name in listing.segments if before < name.frontier <= frontier
        ]
        before = frontier


def insert(conn: psycopg.Connection[tuple[Any, ...]], count: int) -> int:
    """Insert rows, each in a transaction of its own; their number."""
    for _ in range(count):
        conn.execute("INSERT INTO items (filler) VALUES (repeat('x', %s))", [ROW_BYTES])
    return count


def report(pipeline: PipelineUnderTest) -> dict[str, Any]:
    return pipeline.log.capture_report() or {}


def next_report(pipeline: PipelineUnderTest) -> None:
    """Wait until capture has looked at the log once more."""
    seen = report(pipeline)["at"]
    wait_until(lambda: report(pipeline)["at"] > seen, "capture looks at the log")
