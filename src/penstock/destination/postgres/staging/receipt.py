"""What a task tells the driver of what it staged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from penstock.destination.postgres.staging.handover import Handed


@dataclass(frozen=True)
class Part:
    """The net rows of one table in one run of changes, or in the stretch of it in which the table
    is described in the same way.

    ``part`` marks these rows in the staging table; other tables of the run may have the same.
    ``inserts`` to ``deletes`` count them by what they do; for a table without a key, ``inserts``
    are rows to add and ``deletes`` rows to remove, and for a history all are inserts.
    ``incomplete`` of the updates and rekeys have unset columns.
    ``refused`` rows were set aside for the dead letters, and are not among the others.
    A part that was ``handed`` over is not staged: all its rows are to be added.
    """

    table: int
    part: int
    inserts: int = 0
    updates: int = 0
    rekeys: int = 0
    deletes: int = 0
    incomplete: int = 0
    refused: int = 0
    bytes: int = 0
    handed: Handed | None = None

    @property
    def rows(self) -> int:
        """How many rows were staged."""
        return self.inserts + self.updates + self.rekeys + self.deletes


@dataclass(frozen=True)
class Truncated:
    """One TRUNCATE; ``tables`` are those that we follow."""

    tables: tuple[int, ...]
    restart_identity: bool
    commit_lsn: int
    ordinal: int
    xid: int
    commit_micros: int


@dataclass(frozen=True)
class StagedRun:
    """What is left of one run: its truncates, and what each table holds after the last of them."""

    truncates: tuple[Truncated, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class StagedBatch:
    """All runs of a task, or of a batch in order, in the staging tables of ``lane``."""

    lane: int
    runs: tuple[StagedRun, ...]

    def to_bytes(self) -> bytes:
        # Not asdict: it copies every value, which shows with hundreds of tables.
        return json.dumps(self, default=vars, separators=(",", ":")).encode()

    @classmethod
    def from_bytes(cls, receipts: Iterable[bytes]) -> StagedBatch:
        tasks = [json.loads(receipt) for receipt in receipts if receipt]
        lanes = {task["lane"] for task in tasks}
        if len(lanes) > 1:
            raise ValueError("receipts of two batches")
        return cls(
            max(lanes, default=0), tuple(_run(run) for task in tasks for run in task["runs"])
        )

    @property
    def all_parts(self) -> list[Part]:
        """In the order in which they were written."""
        return [part for run in self.runs for part in run.parts]

    @property
    def is_handed(self) -> bool:
        """Whether rows were handed over instead of being staged."""
        return any(part.handed is not None for part in self.all_parts)

    @property
    def size(self) -> int:
        """How many bytes tasks staged or handed over."""
        return sum(part.bytes + (part.handed.size if part.handed else 0) for part in self.all_parts)

    @property
    def truncates(self) -> list[Truncated]:
        return [event for run in self.runs for event in run.truncates]

    def parts(self, *, with_truncated: bool = False) -> dict[int, list[Part]]:
        """The parts of each table in order; without what a later TRUNCATE made void."""
        found: dict[int, list[Part]] = {}
        for run in self.runs:
            if not with_truncated:
                for event in run.truncates:
                    for table in event.tables:
                        found.pop(table, None)
            for part in run.parts:
                found.setdefault(part.table, []).append(part)
        return found


def _run(value: dict[str, Any]) -> StagedRun:
    truncates = (
        Truncated(**{**event, "tables": tuple(event["tables"])}) for event in value["truncates"]
    )
    return StagedRun(tuple(truncates), tuple(map(_part, value["parts"])))


def _part(value: dict[str, Any]) -> Part:
    handed = value["handed"]
    return Part(**{**value, "handed": None if handed is None else Handed(**handed)})


def stretches(parts: Sequence[Part]) -> list[tuple[list[Part], list[Part]]]:
    """A table's parts in order: those that were staged, then those that were handed over, and so
    on in turns.
    """
    found: list[tuple[list[Part], list[Part]]] = []
    for part in parts:
        if not found or (part.handed is None and found[-1][1]):
            found.append(([], []))
        found[-1][part.handed is not None].append(part)
    return found


def total(parts: Sequence[Part], name: str) -> int:
    """The sum of one count over some parts."""
    return sum(getattr(part, name) for part in parts)
