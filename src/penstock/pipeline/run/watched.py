"""What the driver looks at now and then, for the metrics and for what they say of its health."""

from __future__ import annotations

import time
from collections import Counter
from typing import get_args

from penstock.cadence import paced
from penstock.model.errors import PenstockError
from penstock.model.table_state import Phase
from penstock.pipeline.run.context import RunContext
from penstock.pipeline.tables.registry import TableRegistry
from penstock.source.contract import Capture

_LOOK_SECONDS = paced(1.0)
_NO_EXECUTORS = (
    "Spark has no executor for the tasks of a batch: the cluster has no free cores, as where an "
    "application whose driver hangs still holds them, or executors do not start"
)


class Watched:
    """Capture, the source's WAL and the tables' states. Nothing that goes wrong here matters."""

    def __init__(self, context: RunContext, capture: Capture, tables: TableRegistry) -> None:
        self._metrics = context.metrics
        self._session = context.session
        self._engine = context.engine
        self._store = context.store
        self._log = context.log
        # Less than the next segment may need.
        self._least_room = context.config.change_log.segment_bytes
        self._capture = capture
        self._tables = tables
        self._next = 0.0

    def look(self) -> None:
        """Called often; does something once a second."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _LOOK_SECONDS
        # Whoever needs the source, or the report, finds out by himself that it is not to be had.
        self._metrics.health.trouble("source", self._ask_source())
        self._metrics.health.trouble("disk", self._look_at_disk())
        self._metrics.health.tasks_worked(self._engine.batch_work)
        self._metrics.health.trouble(
            "executors", _NO_EXECUTORS if self._engine.lacks_executors else None
        )
        found = Counter(state.phase for state in self._store.get_table_states().values())
        phases = {phase: found[phase] for phase in get_args(Phase)}
        self._metrics.tables(phases, self._tables.note_count)
        unsettled = 0 if self._tables.are_settled else _on_their_way(phases)
        self._metrics.health.tables(unsettled=unsettled, errored=phases["errored"])
        behind = bool(self._metrics.lag.bytes)
        self._metrics.health.turned(has_work=bool(behind or unsettled), is_behind=behind)

    def _ask_source(self) -> str | None:
        try:
            with self._metrics.health.asking("the source"):
                self._metrics.source_is_at(self._session.position())
        except PenstockError as error:
            return f"the source does not answer: {error.message}"
        return None

    def _look_at_disk(self) -> str | None:
        """What is wrong with the change log's disk, and with who writes to it."""
        try:
            self._metrics.captured(self._capture.report())
            free = self._log.root.free_bytes()
        except PenstockError as error:
            return f"the change log cannot be read: {error}"
        if free is None or free >= self._least_room:
            return None
        return f"the disk of the change log {self._log.root.path} is full: {free} bytes are free"


def _on_their_way(phases: dict[str, int]) -> int:
    """How many tables are neither ready nor wait for a person."""
    return sum(count for phase, count in phases.items() if phase not in ("ready", "errored"))
