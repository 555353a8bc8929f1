"""All tables of a pipeline at a glance, also where there are ten thousand."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import datetime

from penstock.model.table_state import (
    Catchup,
    Errored,
    Phase,
    SyncDone,
    TableState,
    TimedRetry,
)
from penstock.operations.named_tables import quoted
from penstock.pipeline.copy.copy_progress import CopyView, copy_view
from penstock.store import PostgresStore, Wish


@dataclass(frozen=True, slots=True)
class TableSummary:
    """``name`` can be given back to a command. ``lsn`` is where the state says one. ``reason``,
    ``solution`` and ``next_try`` are those of an errored table. ``copy`` is one under way.
    ``destination`` is whose state it is, where the pipeline has several; else it is empty.
    """

    oid: int
    name: str
    phase: Phase
    since: datetime | None
    lsn: int | None
    reason: str
    solution: str
    next_try: datetime | None
    wish: Wish | None
    notes: tuple[str, ...]
    copy: CopyView | None
    destination: str = ""


def read_summaries(store: PostgresStore, destination: str = "") -> list[TableSummary]:
    """Ask the store, which is to exist; by name. Five small queries."""
    names = store.load_table_names()
    store.load_table_states()
    store.load_copies()
    store.load_wishes()
    store.load_notes()
    now, found = time.time(), []
    for oid, state in store.get_table_states().items():
        name = quoted(*names[oid]) if oid in names else f"oid {oid}"
        found.append(_summary(store, oid, name, state, now, destination))
    return sorted(found, key=lambda table: table.name)


def _summary(
    store: PostgresStore, oid: int, name: str, state: TableState, now: float, destination: str
) -> TableSummary:
    errored = state if isinstance(state, Errored) else None
    copy = store.get_copy(oid)
    return TableSummary(
        oid,
        name,
        state.phase,
        store.get_state_since(oid),
        state.lsn if isinstance(state, Catchup | SyncDone) else None,
        errored.reason if errored else "",
        errored.solution if errored else "",
        errored.retry.next_at if errored and isinstance(errored.retry, TimedRetry) else None,
        store.get_wish(oid),
        store.get_notes(oid),
        None if copy is None or state.phase == "ready" else copy_view(name, state.phase, copy, now),
        destination,
    )
