"""A report now and then: what came since the last one, and how the pipeline stands."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from penstock.metrics import catalogue as c
from penstock.metrics.catalogue import Metric
from penstock.metrics.registry import Registry, Sample
from penstock.model.quantity_text import bytes_text

_COUNTED = {
    "received": c.RECEIVED_CHANGES,
    "transactions": c.RECEIVED_TRANSACTIONS,
    "delivered": c.DELIVERED,
    "filtered": c.FILTERED,
    "encoded": c.ENCODED_MESSAGES,
    "copied": c.COPIED_ROWS,
    "batches": c.BATCHES,
    "schema_changes": c.SCHEMA_CHANGES,
    "failures": c.FAILURES,
    "retries": c.RETRIES,
}
_STANDING = {
    "lag_bytes": c.LAG_BYTES,
    "lag_seconds": c.LAG_SECONDS,
    "buffered_bytes": c.CAPTURE_BUFFERED,
    "log_bytes": c.LOG_BYTES,
    "unconfirmed_bytes": c.UNCONFIRMED_BYTES,
}


@dataclass(frozen=True)
class Report:
    """``totals`` are since the start of the run, ``since`` those of the last ``seconds``."""

    pipeline: str
    seconds: float
    totals: dict[str, float]
    since: dict[str, float]
    standing: dict[str, float]
    tables: dict[str, int]
    delivered: dict[str, int] = field(default_factory=dict)
    """By table, since the last report."""
    destination: str = ""
    """Of a pipeline that has several, which one this is about."""

    @property
    def name(self) -> str:
        return f"{self.pipeline}.{self.destination}" if self.destination else self.pipeline

    def to_json(self, at: datetime) -> dict[str, Any]:
        return {
            "at": at.isoformat(timespec="milliseconds"),
            "pipeline": self.pipeline,
            **({"destination": self.destination} if self.destination else {}),
            "seconds": round(self.seconds, 3),
            "since_last": {key: _whole(value) for key, value in self.since.items()},
            "totals": {key: _whole(value) for key, value in self.totals.items()},
            "delivered_by_table": self.delivered,
            **{key: _whole(value) for key, value in self.standing.items()},
            "tables": self.tables,
        }

    def to_text(self) -> str:
        since, standing = self.since, self.standing
        rate = since["delivered"] / self.seconds if self.seconds else 0.0
        changes, batches = f"{since['delivered']:,.0f}", f"{since['batches']:,.0f}"
        parts = [f"{changes} changes delivered in {batches} batches ({rate:,.0f}/s)"]
        for key, text in (
            ("copied", "rows copied"),
            ("filtered", "filtered"),
            ("schema_changes", "schema changes"),
            ("failures", "failures"),
            ("retries", "retries"),
        ):
            if since[key]:
                parts.append(f"{since[key]:,.0f} {text}")
        parts.append(
            f"lag {bytes_text(int(standing['lag_bytes']))}, {standing['lag_seconds']:.1f} s"
        )
        parts.append("tables: " + (", ".join(f"{n} {p}" for p, n in self.tables.items()) or "none"))
        return f"last {self.seconds:.0f} s: " + "; ".join(parts)


class Reporter:
    """Makes reports, each of the time since the one before it."""

    def __init__(
        self,
        registry: Registry,
        form: Literal["text", "json"],
        write: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._registry = registry
        self._form = form
        self._write = write
        self._clock = clock
        self._last_at = clock()
        self._last: dict[str, float] = {}
        self._last_tables: dict[str, int] = {}

    def __call__(self) -> None:
        report = self.report()
        if self._form == "json":
            self._write(json.dumps(report.to_json(datetime.now(UTC))))
        else:
            self._write(f"pipeline {report.name}: {report.to_text()}")

    def report(self) -> Report:
        samples, now = list(self._registry.samples()), self._clock()
        totals = {key: _sum(samples, metric) for key, metric in _COUNTED.items()}
        since = {key: value - self._last.get(key, 0.0) for key, value in totals.items()}
        by_table = {s.labels["table"]: 0 for s in samples if s.name == c.DELIVERED.name}
        for sample in samples:
            if sample.name == c.DELIVERED.name:
                by_table[sample.labels["table"]] += int(sample.value)
        delivered = {
            table: count - before
            for table, count in by_table.items()
            if count > (before := self._last_tables.get(table, 0))
        }
        phases = [s for s in samples if s.name == c.TABLES.name and s.value]
        report = Report(
            self._registry.pipeline,
            now - self._last_at,
            totals,
            since,
            {key: _sum(samples, metric) for key, metric in _STANDING.items()},
            {sample.labels["phase"]: int(sample.value) for sample in phases},
            delivered,
            self._registry.destination,
        )
        self._last_at, self._last, self._last_tables = now, totals, by_table
        return report


def _sum(samples: list[Sample], metric: Metric) -> float:
    return sum(sample.value for sample in samples if sample.name == metric.name)


def _whole(value: float) -> float:
    """Without a fraction where there is none; else to the millisecond."""
    return int(value) if value == int(value) else round(value, 3)
