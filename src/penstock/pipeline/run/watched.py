"""What the driver looks at now and then, for the metrics alone."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from typing import get_args

from penstock.cadence import paced
from penstock.model.errors import PenstockError
from penstock.model.table_state import Phase
from penstock.pipeline.run.context import RunContext
from penstock.pipeline.tables.registry import TableRegistry
from penstock.source.contract import Capture

_LOOK_SECONDS = paced(1.0)


class Watched:
    """Capture, the source's WAL and the tables' states. Nothing that goes wrong here matters."""

    def __init__(self, context: RunContext, capture: Capture, tables: TableRegistry) -> None:
        self._metrics = context.metrics
        self._session = context.session
        self._store = context.store
        self._capture = capture
        self._tables = tables
        self._next = 0.0

    def look(self) -> None:
        """Called often; does something once a second."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _LOOK_SECONDS
        # Whoever needs the source, or the report, finds out by himself that it is not to be had.
        with suppress(PenstockError):
            self._metrics.source_is_at(self._session.position())
            self._metrics.captured(self._capture.report())
        found = Counter(state.phase for state in self._store.get_table_states().values())
        phases = {phase: found[phase] for phase in get_args(Phase)}
        self._metrics.tables(phases, self._tables.note_count)
        unsettled = 0 if self._tables.are_settled else _on_their_way(phases)
        self._metrics.health.tables(unsettled=unsettled, errored=phases["errored"])
        self._metrics.health.turned(has_work=bool(self._metrics.lag.bytes or unsettled))


def _on_their_way(phases: dict[str, int]) -> int:
    """How many tables are neither ready nor wait for a person."""
    return sum(count for phase, count in phases.items() if phase not in ("ready", "errored"))
