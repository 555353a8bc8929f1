"""One pipeline's metrics as one small JSON object, whatever the number of its tables.

`penstock serve` asks for it every few seconds: Prometheus' text would be a thousand times larger.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from penstock.metrics import catalogue as c
from penstock.metrics.health import Health
from penstock.metrics.registry import Registry

TOTALS = {
    "received": c.RECEIVED_CHANGES,
    "received_bytes": c.RECEIVED_BYTES,
    "transactions": c.RECEIVED_TRANSACTIONS,
    "delivered": c.DELIVERED,
    "filtered": c.FILTERED,
    "copied": c.COPIED_ROWS,
    "copied_bytes": c.COPIED_BYTES,
    "batches": c.BATCHES,
    "failures": c.FAILURES,
    "retries": c.RETRIES,
    "lag_bytes": c.LAG_BYTES,
    "lag_seconds": c.LAG_SECONDS,
    "log_bytes": c.LOG_BYTES,
    "buffered_bytes": c.CAPTURE_BUFFERED,
    "unconfirmed_bytes": c.UNCONFIRMED_BYTES,
    "capture_streaming": c.CAPTURE_STREAMING,
}
"""By the name that they have in the answer; each is the sum over all labels."""

_LONGEST = ("lag_bytes", "lag_seconds")

_OF_CAPTURE = tuple(key for key, metric in TOTALS.items() if metric in c.OF_CAPTURE)

TIMES = {"batch": c.BATCH_SECONDS, "commit": c.COMMIT_SECONDS, "wait": c.BATCH_WAIT}
"""Histograms: their sum is in the answer as ``…_seconds``."""


def summarise(registry: Registry, health: Health) -> dict[str, Any]:
    """Totals since the start of the run, gauges as they are, phases of tables, health."""
    sums: Counter[str] = Counter()
    phases = {}
    for sample in registry.samples():
        sums[sample.name] += sample.value  # type: ignore[assignment]
        if sample.name == c.TABLES.name and sample.value:
            phases[sample.labels["phase"]] = int(sample.value)
    return {
        "pipeline": registry.pipeline,
        **{key: sums[metric.name] for key, metric in TOTALS.items()},
        **{f"{key}_seconds": sums[f"{metric.name}_sum"] for key, metric in TIMES.items()},
        "tables": phases,
        "health": health.health().body,
        "ready": health.ready().body,
    }


def together(own: dict[str, Any], others: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """The summary of a pipeline whose destinations have one each: sums, but the longest lag."""
    all_of = [own, *others.values()]
    found = {
        key: (max if key in _LONGEST else sum)(each.get(key, 0) for each in all_of)
        for key in (*TOTALS, *(f"{name}_seconds" for name in TIMES))
    }
    phases: Counter[str] = Counter()
    for each in all_of:
        phases.update(each["tables"])
    return {**own, **found, "tables": dict(phases), "destinations": dict(others)}


def of_destination(whole: Mapping[str, Any], name: str) -> dict[str, Any] | None:
    """Of what ``together`` gave, what concerns one destination: its own counts, and those of the
    capture that all share. None where its process said nothing.
    """
    own = whole.get("destinations", {}).get(name)
    return None if own is None else {**own, **{key: whole[key] for key in _OF_CAPTURE}}
