"""The registry, what the parts of a pipeline put into it, and what that says of its health."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.metrics import catalogue as c
from penstock.metrics.catalogue import CATALOGUE
from penstock.metrics.health import STALLED_SECONDS, Health
from penstock.metrics.pipeline_metrics import Metrics
from penstock.metrics.registry import MOST_TABLES, OTHER_TABLES, Registry
from penstock.metrics.written import JobResult, Written
from penstock.model.errors import DestinationUnavailable
from penstock.model.lsn import Frontier, format_lsn


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("shop")


def job(count: int = 3, **more: Any) -> JobResult:
    written = Written(**more)
    written.changes["public.items", "insert"] = count
    return JobResult([b""], written, time.monotonic(), time.monotonic())


# -- the registry --------------------------------------------------------------------------------


def test_what_prometheus_reads_has_the_names_kinds_and_labels_of_the_catalogue(
    metrics: Metrics,
) -> None:
    metrics.committed(job(), Frontier(1, 2), time.monotonic())
    metrics.failed("copy", DestinationUnavailable("away"))
    metrics.copied([("public.items", 1, 2)], Written())
    metrics.copying({"public.items": 7})
    metrics.replayed(Written(seconds={"read": 1.0}))
    metrics.replayed(Written(filtered=Counter({("t", "row"): 1})))
    metrics.tables({"ready": 1})
    metrics.registry.add(c.WEBHOOK_FAILED, reason="away")
    metrics.registry.set(c.WEBHOOK_SUBSCRIPTIONS, 1, state="active")
    text = metrics.registry.exposition().decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    assert families.keys() == {metric.name.removesuffix("_total") for metric in CATALOGUE}
    for metric in CATALOGUE:
        family = families[metric.name.removesuffix("_total")]
        assert (family.type, family.documentation) == (metric.kind, metric.help)
        assert family.samples, metric.name
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == {"pipeline", *metric.labels}


def test_the_number_of_tables_is_bounded() -> None:
    registry = Registry("shop")
    for number in range(MOST_TABLES + 5):
        registry.add(c.COPIED_ROWS, table=f"t{number}")
    registry.add(c.COPIED_ROWS, table="t0")
    assert registry.total(c.COPIED_ROWS, table="t0") == 2
    assert registry.total(c.COPIED_ROWS, table=OTHER_TABLES) == 5
    assert registry.total(c.COPIED_ROWS) == MOST_TABLES + 6


def test_two_pipelines_in_one_process_do_not_meet(metrics: Metrics) -> None:
    metrics.committed(job(), Frontier(1, 2), time.monotonic())
    assert Metrics("other").registry.total(c.DELIVERED) == 0


def test_batches_without_changes_only_move_the_position(metrics: Metrics) -> None:
    metrics.source_is_at(100)
    metrics.committed(JobResult(), Frontier(90, 100), time.monotonic())
    assert metrics.registry.total(c.BATCHES) == metrics.lag.bytes == 0


# -- capture ---------------------------------------------------------------------------------------


def report(started: float, changes: int, **more: Any) -> dict[str, Any]:
    return {
        "state": "streaming",
        "pid": 7,
        "started_at": started,
        "messages": changes * 2,
        "received_bytes": changes * 100,
        "transactions": changes,
        "changes": changes,
        "left_out": 3,
        "forged": 1,
        "buffered_bytes": 5,
        "log_bytes": None,
        "confirmed": format_lsn(400),
        **more,
    }


def test_sessions_of_capture_add_up_though_each_counts_from_zero(metrics: Metrics) -> None:
    registry = metrics.registry
    metrics.source_is_at(1000)
    for said in (report(1.0, 10), report(1.0, 10), report(1.0, 15, log_bytes=77)):
        metrics.captured(said)
    assert registry.total(c.RECEIVED_CHANGES) == 15
    metrics.captured({"state": "reconnecting", "pid": 7, "at": 1.5, "error": "lost"})
    assert registry.total(c.CAPTURE_STREAMING) == 0
    assert not metrics.health.ready().ok
    metrics.captured(report(2.0, 4))
    assert registry.total(c.RECEIVED_CHANGES) == registry.total(c.RECEIVED_TRANSACTIONS) == 19
    assert registry.total(c.RECEIVED_MESSAGES) == 38
    assert registry.total(c.RECEIVED_BYTES) == 1900
    assert (registry.total(c.LEFT_OUT_MESSAGES), registry.total(c.FORGED_MESSAGES)) == (6, 2)
    assert registry.total(c.CAPTURE_STREAMING) == 1
    assert (registry.total(c.CAPTURE_BUFFERED), registry.total(c.LOG_BYTES)) == (5, 77)
    assert registry.total(c.UNCONFIRMED_BYTES) == 600


# -- health ----------------------------------------------------------------------------------------


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_pipeline_is_healthy_while_it_moves_or_has_nothing_to_do() -> None:
    clock = Clock()
    health = Health(clock)
    for _ in range(3):
        clock.now += STALLED_SECONDS
        health.turned(has_work=False)
        assert health.health().ok
    clock.now += STALLED_SECONDS - 1
    health.turned(has_work=True)
    health.moved()
    clock.now += STALLED_SECONDS - 1
    health.turned(has_work=True)
    assert health.health().ok
    clock.now += 2
    health.turned(has_work=True)
    assert "though there is work" in health.health().body["reasons"][0]
    health.moved()
    assert health.health().ok
    clock.now += STALLED_SECONDS + 1
    assert "the driver hangs" in health.health().body["reasons"][0]
    health.turned(has_work=False)
    health.failed("the slot is lost")
    assert health.health().body["reasons"] == ["the pipeline has failed: the slot is lost"]


def test_a_pipeline_is_ready_when_every_table_is_brought_on() -> None:
    health = Health()
    assert len(health.ready().body["reasons"]) == 3
    health.streams()
    health.captures({"state": "streaming"})
    health.tables(unsettled=2, errored=1)
    assert health.ready().body == {
        "status": "not ready",
        "reasons": ["2 tables are not copied yet"],
        "errored_tables": 1,
    }
    health.tables(unsettled=0, errored=1)
    assert health.ready().ok
    health.failed("it broke")
    assert not health.ready().ok
