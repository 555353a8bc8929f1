"""The values of all metrics of one pipeline, in one process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from penstock.metrics.catalogue import CATALOGUE, Metric

# When a series began is of no use here, and doubles their number.
disable_created_metrics()  # type: ignore[no-untyped-call]

MOST_TABLES = 1000
OTHER_TABLES = "(others)"
"""What tables beyond the first ``MOST_TABLES`` are counted under: the number of series is bounded,
also where tables come and go for months.
"""


class Sample(NamedTuple):
    """One value. Histograms have several: ``_bucket``, ``_sum`` and ``_count``."""

    name: str
    kind: str
    labels: dict[str, str]
    value: float


class Registry:
    """Made anew for each run. May be used by any thread.

    Every metric has the label ``pipeline``, and ``destination`` where the pipeline has several.
    """

    def __init__(
        self, pipeline: str, destination: str = "", metrics: Iterable[Metric] = CATALOGUE
    ) -> None:
        self.pipeline = pipeline
        self.destination = destination
        self._own = {"pipeline": pipeline, **({"destination": destination} if destination else {})}
        self._collectors = CollectorRegistry()
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        self._tables: set[str] = set()
        for metric in metrics:
            self._make(metric)

    def _make(self, metric: Metric) -> None:
        name, text, labels = metric.name, metric.help, (*self._own, *metric.labels)
        if metric.kind == "counter":
            self._counters[name] = Counter(name, text, labels, registry=self._collectors)
        elif metric.kind == "gauge":
            self._gauges[name] = Gauge(name, text, labels, registry=self._collectors)
        else:
            self._histograms[name] = Histogram(
                name, text, labels, buckets=metric.buckets, registry=self._collectors
            )
        if not metric.labels:
            # There from the start, as 0: what was never counted is not unknown.
            self._made(metric).labels(**self._own)

    def _made(self, metric: Metric) -> Counter | Gauge | Histogram:
        return (self._counters | self._gauges | self._histograms)[metric.name]

    # -- who measures ------------------------------------------------------------------------------

    def add(self, metric: Metric, amount: float = 1, **labels: str) -> None:
        self._counters[metric.name].labels(**self._labels(labels)).inc(amount)

    def set(self, metric: Metric, value: float, **labels: str) -> None:
        self._gauges[metric.name].labels(**self._labels(labels)).set(value)

    def set_function(self, metric: Metric, value: Callable[[], float]) -> None:
        """The gauge is what ``value`` returns when somebody looks."""
        self._gauges[metric.name].labels(**self._own).set_function(value)

    def observe(self, metric: Metric, value: float) -> None:
        self._histograms[metric.name].labels(**self._own).observe(value)

    def _labels(self, labels: dict[str, str]) -> dict[str, str]:
        table = labels.get("table")
        if table and table not in self._tables:
            if len(self._tables) < MOST_TABLES:
                self._tables.add(table)
            else:
                labels["table"] = OTHER_TABLES
        return {**self._own, **labels}

    # -- who looks ---------------------------------------------------------------------------------

    def samples(self) -> Iterator[Sample]:
        """All values, without the buckets of histograms."""
        for family in self._collectors.collect():
            for sample in family.samples:
                if not sample.name.endswith("_bucket"):
                    yield Sample(sample.name, family.type, dict(sample.labels), sample.value)

    def total(self, metric: Metric, **labels: str) -> float:
        """The sum over all series that have these labels."""
        return sum(
            sample.value
            for sample in self.samples()
            if sample.name == metric.name and labels.items() <= sample.labels.items()
        )

    def exposition(self) -> bytes:
        """All values in Prometheus' text format."""
        return generate_latest(self._collectors)
