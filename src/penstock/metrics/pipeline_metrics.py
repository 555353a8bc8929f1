"""What the parts of a pipeline tell about themselves, as metrics."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, get_args

from penstock.metrics import catalogue as c
from penstock.metrics.catalogue import Metric
from penstock.metrics.health import Answer, Health
from penstock.metrics.lag import Lag
from penstock.metrics.registry import Registry
from penstock.metrics.summary import summarise
from penstock.metrics.written import JobResult, Written
from penstock.model.errors import PenstockError
from penstock.model.lsn import Frontier, parse_lsn

Component = Literal["capture", "copy", "stream", "task"]

_CAPTURED = {
    "messages": c.RECEIVED_MESSAGES,
    "received_bytes": c.RECEIVED_BYTES,
    "transactions": c.RECEIVED_TRANSACTIONS,
    "changes": c.RECEIVED_CHANGES,
    "left_out": c.LEFT_OUT_MESSAGES,
    "forged": c.FORGED_MESSAGES,
}


class Metrics:
    """One run of one pipeline, or of one of its destinations. May be used by any thread; never
    raises.
    """

    def __init__(
        self, pipeline: str, destination: str = "", metrics: Sequence[Metric] = c.CATALOGUE
    ) -> None:
        """``metrics`` are those that are counted here, of what is told."""
        self.registry = Registry(pipeline, destination, metrics)
        self._counts_capture = c.CAPTURE_STREAMING in metrics
        self.lag = Lag()
        self.health = Health()
        self._source_lsn = 0
        self._captured: dict[str, int] = {}
        self._capture_session: object = None
        self._copying: set[str] = set()
        if c.LAG_BYTES in metrics:
            self.registry.set_function(c.LAG_BYTES, lambda: self.lag.bytes)
            self.registry.set_function(c.LAG_SECONDS, lambda: self.lag.seconds)
        for component in get_args(Component):
            self.registry.add(c.RETRIES, 0, component=component)

    # -- who looks ---------------------------------------------------------------------------------

    def exposition(self) -> bytes:
        """All values in Prometheus' text format."""
        return self.registry.exposition()

    def summary(self) -> dict[str, Any]:
        """The same in few values, whatever the number of tables."""
        return summarise(self.registry, self.health)

    def is_healthy(self) -> Answer:
        """What /health says."""
        return self.health.health()

    def is_ready(self) -> Answer:
        """What /ready says."""
        return self.health.ready()

    # -- the stream ------------------------------------------------------------------------------

    def committed(self, job: JobResult, frontier: Frontier, commit_began: float) -> None:
        """A batch of the stream was committed just now."""
        self.lag.delivered(frontier.end_lsn, job.written.commit_micros)
        self.health.moved()
        if job.written.is_empty:
            return
        now = time.monotonic()
        self.registry.add(c.BATCHES)
        self.registry.observe(c.BATCH_SECONDS, now - job.began)
        self.registry.observe(c.BATCH_WAIT, max(0.0, commit_began - job.ended))
        self.registry.observe(c.COMMIT_SECONDS, now - commit_began)
        self.registry.observe(c.BATCH_CHANGES, job.written.changes.total())
        self.replayed(job.written)

    def replayed(self, written: Written) -> None:
        """What tasks wrote is committed, as part of a batch or apart from them."""
        self.health.moved()
        for (table, op), count in written.changes.items():
            self.registry.add(c.DELIVERED, count, table=table, op=op)
        self.registry.add(c.ENCODED_MESSAGES, written.messages)
        self.registry.add(c.ENCODED_BYTES, written.message_bytes)
        self._worked(written)

    def _worked(self, written: Written) -> None:
        for (table, reason), count in written.filtered.items():
            self.registry.add(c.FILTERED, count, table=table, reason=reason)
        for stage, seconds in written.seconds.items():
            self.registry.add(c.TASK_SECONDS, max(0.0, seconds), stage=stage)
        self.registry.add(c.RETRIES, written.retries, component="task")
        self.registry.add(c.RESENT, written.resent)
        self.registry.add(c.UNROUTABLE, written.unroutable)

    def set_back(self) -> None:
        """The destination holds less than it has said before."""
        self.registry.add(c.SETBACKS)

    def schema_changed(self) -> None:
        """The destination holds a change of one table's definition."""
        self.registry.add(c.SCHEMA_CHANGES)

    # -- copies ----------------------------------------------------------------------------------

    def copied(self, chunks: Iterable[tuple[str, int, int]], written: Written) -> None:
        """Chunks are written: table, rows and bytes of each."""
        self.health.moved()
        for table, rows, size in chunks:
            self.registry.add(c.COPIED_CHUNKS, table=table)
            self.registry.add(c.COPIED_ROWS, rows, table=table)
            self.registry.add(c.COPIED_BYTES, size, table=table)
        self._worked(written)

    def copying(self, remaining: Mapping[str, int]) -> None:
        """What is left of each table's copy; a table that is not named has nothing left."""
        for table in self._copying - remaining.keys():
            self.registry.set(c.COPY_REMAINING, 0, table=table)
        for table, size in remaining.items():
            self.registry.set(c.COPY_REMAINING, size, table=table)
        self._copying = set(remaining)

    def tables(self, phases: Mapping[str, int], notes: int = 0) -> None:
        """How many tables are in each phase; every phase is named. ``notes`` counts what the
        destination could not make of them.
        """
        self.registry.set(c.NOTES, notes)
        for phase, count in phases.items():
            self.registry.set(c.TABLES, count, phase=phase)

    # -- capture ---------------------------------------------------------------------------------

    def captured(self, report: Mapping[str, Any]) -> None:
        """What the capture process says of itself. Each of its sessions counts from zero."""
        self.health.captures(report)
        if not self._counts_capture:
            return
        streams = report.get("state") in ("streaming", "paused")
        self.registry.set(c.CAPTURE_STREAMING, streams)
        if "started_at" not in report:
            return
        session = (report["pid"], report["started_at"])
        before = self._captured if session == self._capture_session else {}
        self._capture_session = session
        self._captured = {key: report[key] for key in _CAPTURED}
        for key, metric in _CAPTURED.items():
            self.registry.add(metric, max(0, report[key] - before.get(key, 0)))
        self.registry.set(c.CAPTURE_BUFFERED, report["buffered_bytes"])
        if report["log_bytes"] is not None:
            self.registry.set(c.LOG_BYTES, report["log_bytes"])
        unconfirmed = self._source_lsn - parse_lsn(report["confirmed"])
        self.registry.set(c.UNCONFIRMED_BYTES, max(0, unconfirmed))

    def source_is_at(self, lsn: int) -> None:
        """How far the source's WAL is."""
        self._source_lsn = lsn
        self.lag.source_is_at(lsn)

    # -- trouble ---------------------------------------------------------------------------------

    def failed(self, component: Component, error: PenstockError) -> None:
        """Something was interrupted."""
        self.registry.add(c.FAILURES, component=component, error=type(error).__name__)

    def retried(self, component: Component) -> None:
        """What was interrupted is begun again."""
        self.registry.add(c.RETRIES, component=component)
