"""What `penstock status` says of the tables: their states, and rows that were refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.config.models import PipelineConfig
from penstock.destination.registry import count_dead_letters, list_unrestored
from penstock.model.errors import PenstockError
from penstock.model.table_state import Errored, Ready
from penstock.pipeline.copy.copy_progress import CopyView, copy_views
from penstock.store import SeenWorker, pipeline_store


@dataclass
class TableStatus:
    """``phases`` counts tables by state; ``errored`` says why; ``dead_letters`` counts rows.
    ``copies`` are those that are under way, ``workers`` the processes of `penstock copy`;
    ``notes`` what the destination could not make; ``unrestored`` what of the source's whole schema
    it lacks, each with its statement.

    ``problems`` name what could not be asked.
    """

    phases: dict[str, int] = field(default_factory=dict)
    copies: dict[str, CopyView] = field(default_factory=dict)
    workers: list[dict[str, Any]] = field(default_factory=list)
    errored: dict[str, str] = field(default_factory=dict)
    notes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    dead_letters: dict[str, int] = field(default_factory=dict)
    unrestored: list[dict[str, str]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        copies = {table: view.to_json() for table, view in self.copies.items()}
        return {**asdict(self), "copies": copies}


def read_table_status(config: PipelineConfig) -> TableStatus:
    """Ask store and destination; one that does not answer is a problem, not an error."""
    status = TableStatus()
    try:
        _ask_store(config, status)
    except PenstockError as error:
        status.problems.append(error.message)
    try:
        letters = count_dead_letters(
            config.destination_type, config.destination_options, config.delivery
        )
        status.dead_letters = dict(letters)
        lacking = list_unrestored(
            config.destination_type, config.destination_options, config.delivery
        )
        status.unrestored = [
            {"title": each.title, "statement": each.statement, "why": each.why} for each in lacking
        ]
    except PenstockError as error:
        status.problems.append(error.message)
    return status


def _ask_store(config: PipelineConfig, status: TableStatus) -> None:
    with pipeline_store(config) as store:
        if not store.exists():
            return
        store.load_table_states()
        store.load_table_schemas()
        store.load_copies()
        states = store.get_table_states()
        status.phases = dict(Counter(state.phase for state in states.values()))
        status.copies = {
            view.table: view for view in copy_views(store) if view.phase != Ready().phase
        }
        status.workers = [_worker(seen) for seen in store.load_workers()]
        for oid, notes in store.load_notes().items():
            schema = store.get_table_schema(oid)
            if notes and schema is not None:
                status.notes[schema.qualified_name] = notes
        for oid, state in states.items():
            if isinstance(state, Errored):
                schema = store.get_table_schema(oid)
                status.errored[schema.qualified_name if schema else str(oid)] = state.reason


def _worker(seen: SeenWorker) -> dict[str, Any]:
    return {
        **asdict(seen.report),
        "since": seen.since.isoformat(),
        "silent_seconds": round(seen.silent, 1),
        "is_alive": seen.is_alive,
    }
