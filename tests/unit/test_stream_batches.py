"""Batches of the stream: begun one after another, committed in order, ended in good order."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from types import TracebackType
from typing import Any, Self, cast

import pytest

from penstock.changelog.chain import Batch, Pointer
from penstock.changelog.log_batches import BatchPiece
from penstock.destination.contract import Destination, Receipt, TaskWriter
from penstock.destination.protocols import TakesPieces
from penstock.metrics.written import CopyResult, JobResult, Written
from penstock.model.errors import DestinationError, LogError
from penstock.model.lsn import Frontier
from penstock.pipeline.run import new_segments, stream_batches
from penstock.pipeline.run.engine import Engine, TableToCopy
from penstock.pipeline.run.new_segments import NewSegments
from penstock.pipeline.run.pieces import Pieces
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
        self.pieces: list[BatchPiece] = []
        self.failure: Exception | None = None
        self.full = False

    def is_full(self) -> bool:
        return self.full

    def next(self, _piece_bytes: int | None = None) -> BatchPiece | None:
        if self.failure is not None:
            raise self.failure
        if self.pieces:
            return self.pieces.pop(0)
        if not self.waiting:
            return None
        self.frontier = self.waiting.pop(0)
        return BatchPiece(Batch(self.frontier, (Pointer("segment", 1, 0, 1),)))


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
        receipts = [pointer.segment.encode() for pointer in batch.pointers]
        return JobResult(receipts, Written(), 0.0, 0.0)

    def copy_chunks(
        self, chunks: Sequence[Chunk], open_chunk: OpenChunk, tables: Mapping[int, TableToCopy]
    ) -> CopyResult:
        raise AssertionError


class PieceTaker(TakesPieces):
    """A destination that notes what it takes, and forgets what is undone."""

    gains_by_pieces = True

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.undone = 0

    def take_piece(self, receipts: Sequence[Receipt]) -> None:
        self.taken += receipts

    def undo_pieces(self) -> None:
        self.taken = []
        self.undone += 1


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

        self.destination = PieceTaker()
        self.jobs: list[JobResult] = []
        self.given_up = 0

        def commit(job: JobResult, frontier: Frontier) -> None:
            self.jobs.append(job)
            self.commit(frontier)

        def given_up() -> None:
            self.given_up += 1

        self.may_take, self.asked = True, 0

        def may_take() -> bool:
            self.asked += 1
            return self.may_take

        pieces = Pieces(cast(Destination, self.destination), 1, may_take, nullcontext)
        part = BatchPart(lambda: writer, floors_at, lambda: None, commit, given_up, pieces)
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


def test_a_batch_that_is_full_does_not_wait_for_more() -> None:
    played = Played(ONE, TWO, THREE, age=3600.0)
    with played.batches:
        wait_until(lambda: ONE in played.committed, "the first is not to become fuller")
        played.batches.wait(0.6)
        assert played.committed == [START, ONE]
        played.log.full = True
        wait_until(lambda: THREE in played.committed, "the others are full")


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


def piece(*names: str, is_first: bool = False, is_last: bool = False) -> BatchPiece:
    pointers = tuple(Pointer(name, 1, 0, 1) for name in names)
    return BatchPiece(Batch(ONE, pointers), is_first, is_last)


def test_pieces_are_taken_one_by_one_and_committed_together() -> None:
    played = Played()
    with played.batches:
        played.log.pieces += [piece("a", is_first=True), piece("b", "c")]
        wait_until(lambda: played.destination.taken == [b"a", b"b", b"c"], "both are taken")
        assert ONE not in played.committed
        played.log.pieces.append(piece("d", is_last=True))
        wait_until(lambda: ONE in played.committed, "it is committed")
    assert played.jobs[-1].receipts == [b"a", b"b", b"c", b"d"]
    # The first batch, of nothing, and this one: each has asked once for where it begins.
    assert (len(played.begun), played.given_up) == (2, 0)


def test_a_batch_that_begins_anew_undoes_what_was_taken() -> None:
    played = Played()
    with played.batches:
        played.log.pieces.append(piece("a", is_first=True))
        wait_until(lambda: played.destination.taken == [b"a"], "it is taken")
        played.log.pieces.append(piece("other", is_first=True, is_last=True))
        wait_until(lambda: ONE in played.committed, "it is committed")
    assert played.jobs[-1].receipts == [b"other"]
    assert (played.destination.taken, played.given_up) == ([], 1)


def test_what_was_taken_is_undone_at_the_end() -> None:
    played = Played()
    with played.batches:
        played.log.pieces.append(piece("a", is_first=True))
        wait_until(lambda: played.destination.taken == [b"a"], "it is taken")
    assert (played.destination.taken, played.committed, played.given_up) == ([], [START], 1)


def test_a_batch_that_stands_still_is_undone_and_committed_as_a_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Locks are not held for a transaction whose rest may never come."""
    monkeypatch.setattr(stream_batches, "_REST_SECONDS", 0.0)
    played = Played()
    with played.batches:
        played.log.pieces.append(piece("a", is_first=True))
        wait_until(lambda: played.destination.undone == 1, "it is undone")
        played.log.pieces += [piece("b"), piece("c", is_last=True)]
        wait_until(lambda: ONE in played.committed, "it is committed")
    # What comes after a piece that was left out is not taken either.
    assert (played.destination.taken, played.given_up) == ([], 0)
    assert played.jobs[-1].receipts == [b"a", b"b", b"c"]


def test_pieces_are_left_out_where_something_comes_before_the_commit() -> None:
    played = Played()
    played.may_take = False
    with played.batches:
        played.log.pieces.append(piece("a", is_first=True))
        wait_until(lambda: played.asked == 1, "it is written")
        played.may_take = True
        played.log.pieces += [piece("b"), piece("c", is_last=True)]
        wait_until(lambda: ONE in played.committed, "it is committed")
    assert played.destination.taken == []
    assert played.jobs[-1].receipts == [b"a", b"b", b"c"]


def test_a_piece_of_a_later_batch_waits_for_the_commit_before_it() -> None:
    played, go = Played(ONE), threading.Event()

    def commit(frontier: Frontier) -> None:
        if frontier == ONE:
            go.wait()
        played.committed.append(frontier)

    played.commit = commit
    with played.batches:
        wait_until(lambda: ONE in played.engine.written, "a commit is under way")
        played.log.pieces.append(piece("a", is_first=True))
        wait_until(lambda: len(played.engine.written) == 3, "the piece is written")
        assert played.destination.taken == []
        go.set()
        wait_until(lambda: played.destination.taken == [b"a"], "it is taken")
    assert played.committed == [START, ONE]
