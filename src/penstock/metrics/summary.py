"""One pipeline's metrics as one small JSON object, whatever the number of its tables.

`penstock serve` asks for it every few seconds: Prometheus' text would be a thousand times larger.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from penstock.metrics import catalogue as c
from penstock.metrics.pipeline_metrics import Metrics

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

TIMES = {"batch": c.BATCH_SECONDS, "commit": c.COMMIT_SECONDS, "wait": c.BATCH_WAIT}
"""Histograms: their sum is in the answer as ``…_seconds``."""


def summarise(metrics: Metrics) -> dict[str, Any]:
    """Totals since the start of the run, gauges as they are, phases of tables, health."""
    sums: Counter[str] = Counter()
    phases = {}
    for sample in metrics.registry.samples():
        sums[sample.name] += sample.value  # type: ignore[assignment]
        if sample.name == c.TABLES.name and sample.value:
            phases[sample.labels["phase"]] = int(sample.value)
    return {
        "pipeline": metrics.registry.pipeline,
        **{key: sums[metric.name] for key, metric in TOTALS.items()},
        **{f"{key}_seconds": sums[f"{metric.name}_sum"] for key, metric in TIMES.items()},
        "tables": phases,
        "health": metrics.health.health().body,
        "ready": metrics.health.ready().body,
    }
