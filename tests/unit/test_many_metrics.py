"""Metrics and health of several processes, as one."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.config.metrics_config import ListenAddress
from penstock.metrics import catalogue as c
from penstock.metrics.of_many import ManyMetrics
from penstock.metrics.pipeline_metrics import Metrics
from penstock.metrics.server import MetricsServer
from penstock.model.lsn import Frontier
from tests.unit.test_metrics import job

OTHERS = tuple(metric for metric in c.CATALOGUE if metric not in c.OF_CAPTURE)
STREAMING = {"state": "streaming", "at": 1.0}


@pytest.fixture
def many() -> ManyMetrics:
    many = ManyMetrics("shop", ["a", "b"])
    many.capture.captured(STREAMING)
    return many


@pytest.fixture
def parts(many: ManyMetrics) -> Iterator[dict[str, Metrics]]:
    """The processes of both destinations, as far as they can be asked."""
    parts = {name: Metrics("shop", name, OTHERS) for name in ("a", "b")}
    with ExitStack() as stack:
        for name, metrics in parts.items():
            metrics.captured(STREAMING)
            server = stack.enter_context(MetricsServer(metrics, ListenAddress("127.0.0.1", 0)))
            many.runs_at(name, server.url)
        yield parts


def samples(many: ManyMetrics) -> dict[tuple[str, str | None], float]:
    """By name and destination."""
    text = many.exposition().decode()
    assert text.count("# TYPE penstock_batches_total ") <= 1
    return {
        (sample.name, sample.labels.get("destination")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_each_destination_has_its_label_and_capture_is_counted_once(
    many: ManyMetrics, parts: dict[str, Metrics]
) -> None:
    parts["a"].committed(job(3), Frontier(1, 2), time.monotonic())
    parts["b"].committed(job(4), Frontier(1, 2), time.monotonic())
    found = samples(many)
    assert found["penstock_delivered_changes_total", "a"] == 3
    assert found["penstock_delivered_changes_total", "b"] == 4
    assert found["penstock_batch_changes_sum", "b"] == 4
    assert found["penstock_destination_running", "a"] == 1
    assert found["penstock_capture_streaming", None] == 1
    assert ("penstock_capture_streaming", "a") not in found


def test_one_destination_has_no_label_as_before() -> None:
    text = Metrics("shop").exposition().decode()
    assert 'penstock_batches_total{pipeline="shop"} 0.0' in text
    assert "destination=" not in text


def test_one_that_ended_is_named_and_the_whole_lives(
    many: ManyMetrics, parts: dict[str, Metrics]
) -> None:
    assert many.is_healthy().ok
    many.ended("b", "the warehouse refuses")
    answer = many.is_healthy()
    assert answer.ok, "who restarts all for it would touch the other"
    assert "destination b: the warehouse refuses" in answer.body["reasons"]
    assert answer.body["destinations"]["a"]["status"] == "healthy"
    assert not many.is_ready().ok
    assert samples(many)["penstock_destination_running", "b"] == 0
    many.ended("a", "it fails, too")
    assert not many.is_healthy().ok


def test_a_process_that_does_not_answer_is_not_well(many: ManyMetrics) -> None:
    many.runs_at("a", "http://127.0.0.1:9")  # nobody is there
    answer = many.is_healthy()
    assert not answer.ok
    assert "destination a: its process does not answer" in answer.body["reasons"]
    assert "destination b: it has not begun yet" in answer.body["reasons"]


def test_trouble_with_capture_is_everybodys(many: ManyMetrics, parts: dict[str, Metrics]) -> None:
    many.capture.health.failed("the slot is lost")
    answer = many.is_healthy()
    assert not answer.ok
    assert "the pipeline has failed: the slot is lost" in answer.body["reasons"]
