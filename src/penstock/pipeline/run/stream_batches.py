"""One batch of the stream after another: planned, written by tasks, committed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from penstock.changelog.chain import Batch
from penstock.changelog.log_batches import LogBatches
from penstock.destination.contract import TaskWriter
from penstock.metrics.written import JobResult
from penstock.model.errors import PenstockError
from penstock.model.lsn import Frontier
from penstock.pipeline.run.engine import Engine
from penstock.pipeline.run.new_segments import NewSegments
from penstock.transform.floors import Floors

# What is under way has this long to finish; then it is cancelled.
_STOP_SECONDS = 15.0


@dataclass(frozen=True)
class BatchPart:
    """What batches ask the driver for: first ``floors_at``, then ``writer`` by the thread that
    begins them, ``commit`` by the one that commits them.
    """

    writer: Callable[[], TaskWriter]
    floors_at: Callable[[Frontier], Floors]
    """Once for each batch, with where it begins. May wait for tables that join there."""
    commit: Callable[[JobResult, Frontier], None]


class StreamBatches:
    """Runs batches from the beginning of its block to its end, one every ``age`` seconds at most.

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
        self._commits = Commits(part.commit)
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
                self._begin(start, Batch(start, ()))
                while not self._stopping.is_set():
                    began = time.monotonic()
                    start = self._batches.frontier
                    batch = self._batches.next()
                    if batch is None:
                        self._new_segments.wait()
                    else:
                        self._begin(start, batch)
                        self._stopping.wait(max(0.0, began + self._age - time.monotonic()))
        except BaseException as error:
            if not self._stopping.is_set():
                self._failure = error

    def _begin(self, start: Frontier, batch: Batch) -> None:
        floors = self._part.floors_at(start)
        writer = self._part.writer()
        self._commits.begin(self._engine.write_batch(batch, floors, writer), batch.frontier)


class Commits:
    """One commit at a time, in a thread of its own. After one that failed there is no other."""

    def __init__(self, commit: Callable[[JobResult, Frontier], None]) -> None:
        self._commit = commit
        self._pool = ThreadPoolExecutor(1, "penstock-commit")
        self._under_way: Future[None] | None = None
        self.failure: PenstockError | None = None

    def begin(self, job: JobResult, frontier: Frontier) -> None:
        """Wait for the last commit, then begin this one. Raises what the last one raised."""
        if self._under_way is not None:
            self._under_way.result()
        self._under_way = self._pool.submit(self._run, job, frontier)

    def check(self) -> None:
        """Raise what made the last commit fail."""
        if self._under_way is not None and self._under_way.done():
            self._under_way.result()

    def end(self) -> None:
        """Wait until nothing is being committed."""
        self._pool.shutdown(wait=True)

    def _run(self, job: JobResult, frontier: Frontier) -> None:
        try:
            self._commit(job, frontier)
        except PenstockError as error:
            self.failure = error
            raise
