"""What `penstock status` says of the tables: their states, and rows that were refused."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import Any

from penstock.config.models import PipelineConfig
from penstock.destination.registry import make_destination
from penstock.errors import PenstockError
from penstock.pipeline.table_state import Errored
from penstock.store import pipeline_store


@dataclass
class TableStatus:
    """``phases`` counts tables by state; ``errored`` says why; ``dead_letters`` counts rows.

    ``problems`` name what could not be asked.
    """

    phases: dict[str, int] = field(default_factory=dict)
    errored: dict[str, str] = field(default_factory=dict)
    dead_letters: dict[str, int] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def read_table_status(config: PipelineConfig) -> TableStatus:
    """Ask store and destination; one that does not answer is a problem, not an error."""
    status = TableStatus()
    try:
        _ask_store(config, status)
    except PenstockError as error:
        status.problems.append(error.message)
    try:
        _ask_destination(config, status)
    except PenstockError as error:
        status.problems.append(error.message)
    return status


def _ask_store(config: PipelineConfig, status: TableStatus) -> None:
    with pipeline_store(config) as store:
        if not store.exists():
            return
        store.load_table_states()
        store.load_table_schemas()
        states = store.get_table_states()
        status.phases = dict(Counter(state.phase for state in states.values()))
        for oid, state in states.items():
            if isinstance(state, Errored):
                schema = store.get_table_schema(oid)
                status.errored[schema.qualified_name if schema else str(oid)] = state.reason


def _ask_destination(config: PipelineConfig, status: TableStatus) -> None:
    destination = make_destination(config.destination_type, config.destination_options, config.name)
    try:
        status.dead_letters = dict(destination.dead_letters())
    finally:
        destination.close()
