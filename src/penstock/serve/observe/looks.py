"""What stores and sources say, asked once in a while, however many look."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from penstock.cadence import paced
from penstock.config import PipelineConfig
from penstock.model.errors import PenstockError
from penstock.model.topic_status import TopicStatus
from penstock.operations.table_summaries import TableSummary, read_summaries
from penstock.source.postgres.source_status import SourceStatus
from penstock.source.registry import read_status
from penstock.store import PostgresStore, pipeline_store

T = TypeVar("T")

_TABLES_SECONDS = paced(2.0)
_SOURCE_SECONDS = paced(5.0)
_PAUSE_FACTOR, _OLD_FACTOR = 9, 3
_AT_ONCE = 2


@dataclass(frozen=True)
class _Seen(Generic[T]):
    """An answer or an error; ``changes`` is how many changes had been told of when it was asked
    for.
    """

    answer: T | None
    error: PenstockError | None
    changes: int
    asked_at: float
    due_at: float
    old_at: float


class Look(Generic[T]):
    """One answer, which whoever asks gets at once, and which is renewed behind their backs.

    An answer that is older than ``seconds`` is still given, while a thread of ``pool`` asks anew;
    one that is too old, or that something changed since, is waited for. Several ask: one goes. An
    error is kept like an answer.
    """

    def __init__(self, ask: Callable[[], T], seconds: float, pool: Executor) -> None:
        self._ask = ask
        self._seconds = seconds
        self._pool = pool
        self._asking = threading.Lock()
        self._lock = threading.Lock()
        self._under_way = False
        self._changes = 0
        self._seen: _Seen[T] | None = None

    def get(self) -> T:
        """Raises the PenstockError that asking raised."""
        now = time.monotonic()
        seen = self._seen
        if seen is None or seen.changes != self._changes or now >= seen.old_at:
            seen = self._ask_now(now)
        elif now >= seen.due_at:
            self._ask_soon()
        if seen.error is not None:
            raise seen.error
        return seen.answer  # type: ignore[return-value]

    def forget(self) -> None:
        """Something was changed: what was known before is not given to anybody any more."""
        with self._lock:
            self._changes += 1

    @property
    def known(self) -> T | None:
        """The last answer, without asking; it may be old."""
        seen = self._seen
        return None if seen is None else seen.answer

    def _ask_now(self, since: float) -> _Seen[T]:
        with self._asking:
            seen = self._seen
            # Another one may have asked while we waited: an answer of since then is as good.
            if seen is None or seen.changes != self._changes or seen.asked_at < since:
                seen = self._seen = self._asked()
            return seen

    def _ask_soon(self) -> None:
        with self._lock:
            if self._under_way:
                return
            self._under_way = True
        try:
            self._pool.submit(self._renew)
        except RuntimeError:
            # The server stops, and nobody waits for an answer any more.
            with self._lock:
                self._under_way = False

    def _renew(self) -> None:
        try:
            self._ask_now(time.monotonic())
        finally:
            with self._lock:
                self._under_way = False

    def _asked(self) -> _Seen[T]:
        changes, asked_at, spent = self._changes, time.monotonic(), time.thread_time()
        answer: T | None = None
        error: PenstockError | None = None
        try:
            answer = self._ask()
        except PenstockError as failed:
            error = failed
        # Of very many tables the next look waits longer: looking takes a tenth of a core at most.
        pause = max(self._seconds, _PAUSE_FACTOR * (time.thread_time() - spent))
        done = time.monotonic()
        return _Seen(answer, error, changes, asked_at, done + pause, done + _OLD_FACTOR * pause)


class TablesLook:
    """The tables of one pipeline, on a connection that stays open between two looks."""

    def __init__(self, config: PipelineConfig) -> None:
        self._store: PostgresStore = pipeline_store(config)
        self._destination = config.destination_name
        self._exists = False
        self._stamp = ""
        self._seen: list[TableSummary] = []

    def __call__(self) -> list[TableSummary]:
        """Reads them only where something changed, or where copies are under way."""
        if not self._exists:
            self._exists = self._store.exists()
            if not self._exists:
                return []
        try:
            stamp = self._store.table_stamp()
            if stamp != self._stamp or any(table.copy is not None for table in self._seen):
                self._seen = read_summaries(self._store, self._destination)
                self._stamp = stamp
            return self._seen
        except PenstockError:
            # The store may have been removed: look for it again.
            self._exists = False
            raise

    def close(self) -> None:
        self._store.close()


@dataclass
class PipelineLooks:
    """What is asked about one destination of a pipeline, for as long as its file stays the same."""

    config: PipelineConfig
    tables: Look[list[TableSummary]]
    source: Look[SourceStatus | TopicStatus]
    close: Callable[[], None]


class Looks:
    """May be used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, PipelineLooks] = {}
        self._pool = ThreadPoolExecutor(_AT_ONCE, "penstock-look")

    def of(self, config: PipelineConfig) -> PipelineLooks:
        with self._lock:
            kept = self._kept.get(config.delivery)
            if kept is None or kept.config is not config:
                if kept is not None:
                    kept.close()
                kept = self._kept[config.delivery] = _made(config, self._pool)
            return kept

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            for kept in self._kept.values():
                kept.close()
            self._kept.clear()


def _made(config: PipelineConfig, pool: Executor) -> PipelineLooks:
    tables = TablesLook(config)
    return PipelineLooks(
        config,
        Look(tables, _TABLES_SECONDS, pool),
        Look(lambda: read_status(config), _SOURCE_SECONDS, pool),
        tables.close,
    )
