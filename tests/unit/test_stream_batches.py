"""Batches of the stream: begun one after another, committed in order, ended in good order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

import pytest

from penstock.changelog.chain import Batch, Pointer
from penstock.destination.contract import TaskWriter
from penstock.metrics.written import CopyResult, JobResult, Written
from penstock.model.errors import DestinationError, LogError
from penstock.model.lsn import Frontier
from penstock.pipeline.run import new_segments, stream_batches
from penstock.pipeline.run.engine import Engine, TableToCopy
from penstock.pipeline.run.new_segments import NewSegments
from penstock.pipeline.run.stream_batches import BatchPart, StreamBatches
from penstock.source.contract import OpenChunk
from penstock.source.copy_plan import Chunk
from penstock.transform.floors import Floors
from penstock.transform.section import Section
from tests.fix_pipeline import wait_until

START = Frontier(10, 11)
ONE, TWO, THREE = Frontier(20, 21), Frontier(30, 31), Frontier(40, 41)


class PlayedLog:
    """In the place of LogBatches: what a test puts into it."""

    def __init__(self, *ends: Frontier) -> None:
        self.frontier = START
        self.waiting = list(ends)
        self.failure: Exception | None = None

    def next(self) -> Batch | None:
        if self.failure is not None:
            raise self.failure
        if not self.waiting:
            return None
        self.frontier = self.waiting.pop(0)
        return Batch(self.frontier, (Pointer("segment", 1, 0, 1),))


class PlayedEngine(Engine):
    """Jobs end when a test lets them, or when they are cancelled."""

    def __init__(self) -> None:
        self.written: list[Frontier] = []
        self.go = threading.Event()
        self.go.set()
        self.cancelled = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    @property
    def parallelism(self) -> int:
        return 1

    def check(self) -> None:
        pass

    @contextmanager
    def cancellable(self) -> Iterator[Callable[[], None]]:
        yield self.cancelled.set

    def write_batch(
        self, batch: Batch, floors: Floors, writer: TaskWriter, section: Section | None = None
    ) -> JobResult:
        self.written.append(batch.frontier)
        while not self.go.wait(0.01):
            if self.cancelled.is_set():
                raise DestinationError("cancelled")
        return JobResult([], Written(), 0.0, 0.0)

    def copy_chunks(
        self, chunks: Sequence[Chunk], open_chunk: OpenChunk, tables: Mapping[int, TableToCopy]
    ) -> CopyResult:
        raise AssertionError


class Played:
    def __init__(self, *ends: Frontier, age: float = 0.0) -> None:
        self.log = PlayedLog(*ends)
        self.engine = PlayedEngine()
        self.new_segments = NewSegments()
        self.begun: list[Frontier] = []
        self.committed: list[Frontier] = []
        self.commit: Callable[[Frontier], None] = self.committed.append
        writer: Any = None

        def floors_at(start: Frontier) -> Floors:
            self.begun.append(start)
            return Floors()

        part = BatchPart(lambda: writer, floors_at, lambda _, frontier: self.commit(frontier))
        log: Any = self.log
        self.batches = StreamBatches(self.engine, log, age, part, self.new_segments)


def test_the_first_batch_tells_where_it_stands_and_the_others_follow() -> None:
    played = Played(ONE, TWO)
    with played.batches:
        wait_until(lambda: len(played.committed) == 3, "all are committed")
        played.batches.wait(0.0)
    assert played.committed == played.engine.written == [START, ONE, TWO]
    assert played.begun == [START, START, ONE]


def test_the_next_one_is_written_while_one_is_committed() -> None:
    played, go = Played(ONE, TWO, THREE), threading.Event()

    def commit(frontier: Frontier) -> None:
        go.wait()
        played.committed.append(frontier)

    played.commit = commit
    with played.batches:
        wait_until(lambda: len(played.engine.written) == 2, "the second one is written")
        # But one alone: the third is not begun before the first is committed.
        played.batches.wait(0.1)
        assert (played.engine.written, played.committed) == ([START, ONE], [])
        go.set()
        wait_until(lambda: len(played.committed) == 4, "all are committed")
    assert played.committed == [START, ONE, TWO, THREE]


def test_a_commit_that_fails_ends_it_and_none_comes_after_it() -> None:
    played = Played(ONE, TWO, THREE)

    def commit(frontier: Frontier) -> None:
        if frontier == ONE:
            raise DestinationError("refused")
        played.committed.append(frontier)

    played.commit = commit
    with played.batches, pytest.raises(DestinationError, match="refused"):
        played.batches.wait(60.0)
    assert played.committed == [START]


def test_a_log_that_fails_ends_it() -> None:
    played = Played()
    played.log.failure = LogError("a gap")
    with played.batches, pytest.raises(LogError, match="a gap"):
        played.batches.wait(60.0)


def test_what_is_under_way_at_the_end_is_committed_and_nothing_begins() -> None:
    played = Played(ONE, TWO)
    with played.batches:
        wait_until(lambda: START in played.committed, "it runs")
        played.engine.go.clear()
        wait_until(lambda: len(played.engine.written) > 1, "one is under way")
        threading.Timer(0.1, played.engine.go.set).start()
    assert played.committed == played.engine.written
    assert not played.engine.cancelled.is_set()


def test_what_takes_too_long_at_the_end_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_batches, "_STOP_SECONDS", 0.05)
    played = Played()
    with played.batches:
        wait_until(lambda: START in played.committed, "it runs")
        played.engine.go.clear()
        played.log.waiting.append(ONE)
        wait_until(lambda: ONE in played.engine.written, "one is under way")
    assert played.engine.cancelled.is_set()
    assert played.committed == [START]


def test_a_clock_that_is_set_back_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    played, now = Played(ONE, TWO, THREE, age=0.05), time.time
    # An hour with each batch.
    monkeypatch.setattr(time, "time", lambda: now() - 3600.0 * len(played.begun))
    with played.batches:
        wait_until(lambda: THREE in played.committed, "it goes on", timeout=20)


def test_capture_s_word_wakes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing else does here."""
    monkeypatch.setattr(new_segments, "_TOLD_POLL_SECONDS", 3600.0)
    played = Played()
    played.new_segments.are_told = True
    with played.batches:
        wait_until(lambda: START in played.committed, "it runs")
        played.log.waiting.append(ONE)
        played.new_segments.came("segment", 1)
        wait_until(lambda: ONE in played.committed, "it was woken")


def test_one_that_nobody_tells_looks_for_itself() -> None:
    played = Played()
    with played.batches:
        wait_until(lambda: START in played.committed, "it runs")
        played.log.waiting.append(ONE)
        wait_until(lambda: ONE in played.committed, "it has looked")
