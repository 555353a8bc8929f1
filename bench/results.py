"""Measurements, their medians and ratios, and the file they end up in. Pure but for the file."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bench.settings import (
    BY_WORKERS,
    DUMPED,
    INTO_LAKES,
    INTO_TABLES,
    ON_CLUSTERS,
    SNAPSHOT,
    SYSTEMS,
    TRANSFORMED,
)

# What each ratio is a ratio to, and for which systems: who writes to no table is not compared with
# one that does.
_REFERENCES = {
    "ratio_to_pg_recvlogical": ("pg_recvlogical", SYSTEMS),
    "ratio_to_native": ("native_subscription", INTO_TABLES),
    "ratio_to_spark_merge": ("spark_merge", ("spark_merge", *INTO_LAKES)),
    "ratio_to_1_worker": ("postgres_on_1_worker", tuple(ON_CLUSTERS)),
    "ratio_to_copy_worker": ("copy_workers_1", tuple(BY_WORKERS)),
    "ratio_to_discard": ("discard", (TRANSFORMED,)),
    "ratio_to_psql_copy": ("psql_copy_binary_2", ("psql_copy_binary_2", "spark_jdbc", "discard")),
    "ratio_to_spark_jdbc": ("spark_jdbc", ("spark_jdbc", "discard")),
    "ratio_to_psql_pipe": ("psql_copy_pipe", ("psql_copy_pipe", "postgres")),
    "ratio_to_pg_dump": (DUMPED, (DUMPED, SNAPSHOT)),
}


@dataclass(frozen=True)
class Measurement:
    """One system once over one workload. None where a figure does not apply.

    ``cpu_s`` is what the system's own processes used, ``server_cpu_s`` its walsender or, where rows
    are copied, the whole source, ``destination_cpu_s`` the whole server that it writes to.

    Of a copy, ``changes`` are its rows, ``chunk_seconds`` go from its begin to its last row's
    arrival, ``run_seconds`` over the whole command.

    ``stage_cpu_s`` has the processor time of each stage that a change passes, by name.
    """

    workload: str
    system: str
    changes: int
    seconds: float
    cpu_s: float
    server_cpu_s: float | None
    peak_rss_mb: float
    rss_mb: dict[str, float] = field(default_factory=dict)
    p50_ms: float | None = None
    p99_ms: float | None = None
    phase: str | None = None
    peak_pss_mb: float | None = None
    pss_mb: dict[str, float] = field(default_factory=dict)
    destination_cpu_s: float | None = None
    tables: int | None = None
    chunk_seconds: float | None = None
    run_seconds: float | None = None
    stage_cpu_s: dict[str, float] = field(default_factory=dict)

    @property
    def rows_per_s(self) -> float:
        return self.changes / self.seconds

    @property
    def tables_per_s(self) -> float | None:
        return None if self.tables is None else self.tables / self.seconds

    @property
    def chunk_rows_per_s(self) -> float | None:
        return None if self.chunk_seconds is None else self.changes / self.chunk_seconds

    @property
    def cpu_s_per_million(self) -> float:
        return self.cpu_s / self.changes * 1e6

    @property
    def server_cpu_s_per_million(self) -> float | None:
        return self._per_million(self.server_cpu_s)

    @property
    def destination_cpu_s_per_million(self) -> float | None:
        return self._per_million(self.destination_cpu_s)

    def _per_million(self, seconds: float | None) -> float | None:
        return None if seconds is None else seconds / self.changes * 1e6


def percentile(values: Iterable[float], percent: float) -> float:
    """The smallest value that at least ``percent`` of all values do not exceed."""
    ordered = sorted(values)
    if not ordered:
        raise ValueError("no values to take a percentile of")
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]


def ratio(rows_per_s: float | None, reference: float | None) -> float | None:
    if rows_per_s is None or not reference:
        return None
    return round(rows_per_s / reference, 3)


def summarise(measurements: Sequence[Measurement], scale: float) -> list[dict[str, Any]]:
    """One entry a workload, phase and system: medians over the rounds, which are kept beside them.

    A ratio is between the medians on the same backlog; peak memory is the worst of the rounds.
    """
    groups: dict[tuple[str, str | None, str], list[Measurement]] = {}
    for m in measurements:
        groups.setdefault((m.workload, m.phase, m.system), []).append(m)
    entries = [_entry(rounds, scale) for rounds in groups.values()]
    rates = {(e["workload"], e["phase"], e["system"]): e["rows_per_s"] for e in entries}
    for entry in entries:
        # A steady load has the same rate for everybody.
        if entry["p50_ms"] is not None:
            continue
        for key, (system, compared) in _REFERENCES.items():
            if entry["system"] in compared:
                reference = rates.get((entry["workload"], entry["phase"], system))
                entry[key] = ratio(entry["rows_per_s"], reference)
    return entries


def _entry(rounds: list[Measurement], scale: float) -> dict[str, Any]:
    parts = sorted({part for measurement in rounds for part in measurement.rss_mb})
    stages = dict.fromkeys(stage for measurement in rounds for stage in measurement.stage_cpu_s)
    return {
        "workload": rounds[0].workload,
        "phase": rounds[0].phase,
        "system": rounds[0].system,
        "rows_per_s": _median([m.rows_per_s for m in rounds], 0),
        **dict.fromkeys(_REFERENCES),
        "cpu_s_per_million": _median([m.cpu_s_per_million for m in rounds], 3),
        "peak_rss_mb": max(m.peak_rss_mb for m in rounds),
        "peak_pss_mb": max((m.peak_pss_mb for m in rounds if m.peak_pss_mb), default=None),
        "pss_mb": max((m.pss_mb for m in rounds), key=lambda parts: sum(parts.values())),
        "p50_ms": _median([m.p50_ms for m in rounds], 1),
        "p99_ms": _median([m.p99_ms for m in rounds], 1),
        "server_cpu_s_per_million": _median([m.server_cpu_s_per_million for m in rounds], 3),
        "destination_cpu_s_per_million": _median(
            [m.destination_cpu_s_per_million for m in rounds], 3
        ),
        "stage_cpu_us": {
            stage: _median([m.stage_cpu_s.get(stage, 0.0) / m.changes * 1e6 for m in rounds], 2)
            for stage in stages
        },
        "rss_mb": {part: max(m.rss_mb.get(part, 0.0) for m in rounds) for part in parts},
        "rows": rounds[0].changes,
        "seconds": _median([m.seconds for m in rounds], 3),
        "tables": rounds[0].tables,
        "tables_per_s": _median([m.tables_per_s for m in rounds], 1),
        "chunk_rows_per_s": _median([m.chunk_rows_per_s for m in rounds], 0),
        "run_seconds": _median([m.run_seconds for m in rounds], 3),
        "scale": scale,
        "rounds": [asdict(m) | {"rows_per_s": round(m.rows_per_s)} for m in rounds],
    }


def _median(values: Sequence[float | None], digits: int) -> float | None:
    present = [value for value in values if value is not None]
    return round(statistics.median(present), digits) if present else None


def write_results(path: Path, entries: list[dict[str, Any]]) -> None:
    """Put entries in place of those of the same workload, phase, system and scale; others stay."""
    known = json.loads(path.read_text()) if path.exists() else []
    merged = {_key(entry): entry for entry in [*known, *entries]}
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(list(merged.values()), indent=1) + "\n")
    temporary.replace(path)


def _key(entry: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(entry.get(key) for key in ("workload", "phase", "system", "scale"))
