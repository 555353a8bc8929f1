"""One batch of the stream after another: planned, written by tasks, committed.

A destination that gains by it is given large batches in pieces: what one job has written it takes
while the next is at work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from math import inf
from types import TracebackType
from typing import Self

from penstock.changelog.chain import Batch
from penstock.changelog.log_batches import BatchPiece, LogBatches
from penstock.destination.contract import TaskWriter
from penstock.metrics.written import JobResult, in_turn
from penstock.model.errors import PenstockError
from penstock.model.lsn import Frontier
from penstock.pipeline.run.engine import Engine
from penstock.pipeline.run.new_segments import NewSegments
from penstock.pipeline.run.pieces import Pieces
from penstock.transform.floors import Floors

# What is under way has this long to finish; then it is cancelled.
_STOP_SECONDS = 15.0
# While a batch is to become fuller, the log is looked at this often.
_LOOK_SECONDS = 0.25
# So long a destination holds pieces of a batch that does not go on.
_REST_SECONDS = 10.0


@dataclass(frozen=True)
class BatchPart:
    """What batches ask the driver for: first ``floors_at``, then ``writer``, and ``heed`` before
    each piece, by the thread that begins them; ``commit`` by the one that commits them, or
    ``given_up`` where a batch of which pieces were taken has no end.
    """

    writer: Callable[[], TaskWriter]
    floors_at: Callable[[Frontier], Floors]
    """Once for each batch, with where it begins. May wait for tables that join there."""
    heed: Callable[[], None]
    commit: Callable[[JobResult, Frontier], None]
    given_up: Callable[[], None]
    pieces: Pieces


@dataclass(frozen=True)
class _Begun:
    """A batch, and what jobs have written of it so far."""

    floors: Floors
    writer: TaskWriter
    jobs: list[JobResult] = field(default_factory=list)


class StreamBatches:
    """Runs batches from the beginning of its block to its end, one every ``age`` seconds at most,
    but for those that are full before that.

    They are planned and begun by a thread of its own, and committed by another one: while one batch
    is being committed, tasks work on the next already. Commits come one after another, in order.
    There is always a first batch, also of nothing: it tells the destination where it stands.
    """

    def __init__(
        self,
        engine: Engine,
        batches: LogBatches,
        age: float,
        part: BatchPart,
        new_segments: NewSegments,
    ) -> None:
        self._new_segments = new_segments
        self._engine = engine
        self._batches = batches
        self._age = age
        self._part = part
        self._commits = CommitsInTurn(part.commit, part.pieces)
        self._begun: _Begun | None = None
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._cancel: Callable[[], None] = lambda: None
        self._thread = threading.Thread(target=self._run, name="penstock-batches", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """What is under way is finished and committed, and none begins after it. One that takes too
        long is cancelled; then it leaves no trace.
        """
        self._stopping.set()
        self._new_segments.came()
        self._thread.join(_STOP_SECONDS)
        if self._thread.is_alive():
            self._cancel()
            self._thread.join()
        self._give_up()
        self._commits.end()

    def wait(self, seconds: float) -> None:
        """Raises what has ended the batches. Only that ends them inside of the block."""
        self._commits.check()
        self._thread.join(seconds)
        if self._failure is not None:
            raise self._commits.failure or self._failure

    def _run(self) -> None:
        try:
            with self._engine.cancellable() as self._cancel:
                start = self._batches.frontier
                self._write(start, BatchPiece(Batch(start, ())))
                while not self._stopping.is_set():
                    began = time.monotonic()
                    start = self._batches.frontier
                    piece = self._batches.next(self._part.pieces.size)
                    if piece is None:
                        self._commits.wait()
                        self._new_segments.wait()
                        continue
                    self._write(start, piece)
                    if piece.is_last:
                        self._rest(began + self._age)
        except BaseException as error:
            if not self._stopping.is_set():
                self._failure = error

    def _rest(self, until: float) -> None:
        """Let the next batch become fuller, while it can."""
        while (left := until - time.monotonic()) > 0 and not self._stopping.is_set():
            # A look costs more than a short rest could gain.
            if left > _LOOK_SECONDS and self._batches.is_full():
                return
            self._stopping.wait(min(left, _LOOK_SECONDS))

    def _write(self, start: Frontier, piece: BatchPiece) -> None:
        if piece.is_first:
            self._give_up()
            self._begun = _Begun(self._part.floors_at(start), self._part.writer())
        begun = self._begun
        assert begun is not None  # noqa: S101 (every batch has a first piece)
        self._part.heed()
        begun.jobs.append(self._engine.write_batch(piece.batch, begun.floors, begun.writer))
        if piece.is_last:
            self._begun = None
            self._commits.begin(in_turn(begun.jobs), piece.batch.frontier)
        else:
            self._commits.take(begun.jobs[-1])

    def _give_up(self) -> None:
        """Of a batch that has no end nothing stays."""
        if self._begun is not None:
            self._begun = None
            self._commits.undo()
            self._part.given_up()


class CommitsInTurn:
    """One commit at a time, in a thread of its own. After one that failed there is no other."""

    def __init__(self, commit: Callable[[JobResult, Frontier], None], pieces: Pieces) -> None:
        self._commit = commit
        self._pieces = pieces
        self._pool = ThreadPoolExecutor(1, "penstock-commit")
        self._under_way: Future[None] | None = None
        self._taken: list[Future[None]] = []
        self._rests_at = inf
        self.failure: PenstockError | None = None

    def take(self, job: JobResult) -> None:
        """A piece of the batch whose commit begins next. Raises what the last commit raised."""
        self.check()
        is_first = not self._taken
        take = partial(self._pieces.take, job.receipts, is_first=is_first)
        self._taken.append(self._pool.submit(take))
        self._rests_at = time.monotonic() + _REST_SECONDS

    def wait(self) -> None:
        """The next piece is not there yet: no lock is held for long, for one that may not come."""
        if self._taken and self._taken[-1].done() and time.monotonic() > self._rests_at:
            self._rests_at = inf
            self._pool.submit(self._pieces.undo)

    def undo(self) -> None:
        """Of the pieces nothing stays, once this returns."""
        self._taken = []
        self._pool.submit(self._pieces.undo).result()

    def begin(self, job: JobResult, frontier: Frontier) -> None:
        """Wait for the last commit, then begin this one. Raises what the last one raised."""
        if self._under_way is not None:
            self._under_way.result()
        taken, self._taken = self._taken, []
        self._under_way = self._pool.submit(self._run, job, frontier, taken)

    def check(self) -> None:
        """Raise what made the last commit fail."""
        if self._under_way is not None and self._under_way.done():
            self._under_way.result()

    def end(self) -> None:
        """Wait until nothing is being committed, and nothing is taken of what is not."""
        self.undo()
        self._pool.shutdown(wait=True)

    def _run(self, job: JobResult, frontier: Frontier, taken: Sequence[Future[None]]) -> None:
        try:
            for piece in taken:
                piece.result()
            self._commit(job, frontier)
        except PenstockError as error:
            self.failure = error
            raise
