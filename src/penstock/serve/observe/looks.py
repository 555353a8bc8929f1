"""What stores and sources say, asked at most once in a while, however many look."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from penstock.cadence import paced
from penstock.config import PipelineConfig
from penstock.model.errors import PenstockError
from penstock.operations.table_summaries import TableSummary, read_summaries
from penstock.source.postgres.connect import connect
from penstock.source.postgres.source_status import SourceStatus, read_source_status
from penstock.store import PostgresStore, pipeline_store

T = TypeVar("T")

_TABLES_SECONDS = paced(2.0)
_SOURCE_SECONDS = paced(5.0)


class Look(Generic[T]):
    """One answer, kept for ``seconds``. An error is kept as long. Several ask: one goes."""

    def __init__(self, ask: Callable[[], T], seconds: float) -> None:
        self._ask = ask
        self._seconds = seconds
        self._lock = threading.Lock()
        self._until = 0.0
        self._answer: T | None = None
        self._error: PenstockError | None = None

    def get(self) -> T:
        """Raises the PenstockError that asking raised."""
        with self._lock:
            if time.monotonic() >= self._until:
                try:
                    self._answer, self._error = self._ask(), None
                except PenstockError as error:
                    self._answer, self._error = None, error
                self._until = time.monotonic() + self._seconds
            if self._error is not None:
                raise self._error
            return self._answer  # type: ignore[return-value]

    def forget(self) -> None:
        """Ask anew next time: something was changed."""
        self._until = 0.0

    @property
    def known(self) -> T | None:
        """The last answer, without asking; it may be old."""
        return self._answer


class TablesLook:
    """The tables of one pipeline, on a connection that stays open between two looks."""

    def __init__(self, config: PipelineConfig) -> None:
        self._store: PostgresStore = pipeline_store(config)
        self._exists = False

    def __call__(self) -> list[TableSummary]:
        if not self._exists:
            self._exists = self._store.exists()
            if not self._exists:
                return []
        try:
            return read_summaries(self._store)
        except PenstockError:
            # The store may have been removed: look for it again.
            self._exists = False
            raise

    def close(self) -> None:
        self._store.close()


@dataclass
class PipelineLooks:
    """What is asked about one pipeline, for as long as its file stays the same."""

    config: PipelineConfig
    tables: Look[list[TableSummary]]
    source: Look[SourceStatus]
    close: Callable[[], None]


class Looks:
    """May be used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[str, PipelineLooks] = {}

    def of(self, config: PipelineConfig) -> PipelineLooks:
        with self._lock:
            kept = self._kept.get(config.name)
            if kept is None or kept.config is not config:
                if kept is not None:
                    kept.close()
                kept = self._kept[config.name] = _made(config)
            return kept

    def close(self) -> None:
        with self._lock:
            for kept in self._kept.values():
                kept.close()
            self._kept.clear()


def _made(config: PipelineConfig) -> PipelineLooks:
    tables = TablesLook(config)
    return PipelineLooks(
        config,
        Look(tables, _TABLES_SECONDS),
        Look(lambda: _source(config), _SOURCE_SECONDS),
        tables.close,
    )


def _source(config: PipelineConfig) -> SourceStatus:
    with connect(config.source.url, application_name=f"penstock {config.name} serve") as conn:
        return read_source_status(conn, config.name)


def log_status(config: PipelineConfig) -> dict[str, Any]:
    """What the change log holds. Raises LogError."""
    from penstock.changelog.changelog import ChangeLog
    from penstock.changelog.status import read_log_status

    return read_log_status(ChangeLog.of(config.change_log)).to_json()
