"""The metrics of whole pipelines, scraped over HTTP and compared with what was really done."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from psycopg.conninfo import make_conninfo

from penstock.config.metrics_config import ListenAddress
from penstock.destination.files.destination import FilesDestination
from penstock.metrics import health
from penstock.metrics.pipeline_metrics import Metrics
from penstock.metrics.server import MetricsServer
from penstock.model.errors import DestinationUnavailable
from penstock.source.postgres import pipeline_lock
from tests.application_session import connect
from tests.fix_pipeline import MakePipeline, PipelineUnderTest, wait_until
from tests.fix_target import Target
from tests.http_get import http_get
from tests.pipelines import pipeline_on
from tests.tcp_proxy import TcpProxy
from tests.threads_engine import Threads

SOON = {"max_age": "200ms"}
FILTER = {
    "tables": {"exclude": ["secrets"]},
    "operations": {"exclude": ["delete"]},
    "rows": {"items": "price > 10"},
}


class Scraped:
    """One look at /metrics."""

    def __init__(self, url: str, pipeline: str) -> None:
        text = http_get(f"{url}/metrics").text
        self._samples = [s for f in text_string_to_metric_families(text) for s in f.samples]
        assert {sample.labels["pipeline"] for sample in self._samples} == {pipeline}

    def __call__(self, name: str, **labels: str) -> float:
        return sum(
            sample.value
            for sample in self._samples
            if sample.name == f"penstock_{name}" and labels.items() <= sample.labels.items()
        )

    def by(self, name: str, *labels: str) -> dict[tuple[str, ...], float]:
        return {
            tuple(sample.labels[label] for label in labels): sample.value
            for sample in self._samples
            if sample.name == f"penstock_{name}" and sample.value
        }


class Running:
    """A pipeline in a thread, with its metrics on a free port."""

    def __init__(self, pipeline: PipelineUnderTest, url: str) -> None:
        self._name = pipeline.name
        self.url = url

    def scrape(self) -> Scraped:
        return Scraped(self.url, self._name)

    def ask(self, path: str) -> tuple[int, dict[str, Any]]:
        got = http_get(f"{self.url}{path}")
        return got.status, json.loads(got.text)

    def wait(self, name: str, least: float, **labels: str) -> Scraped:
        """Until the sum of a metric's series has got there."""

        def reached() -> Scraped | None:
            scraped = self.scrape()
            return scraped if scraped(name, **labels) >= least else None

        found = wait_until(reached, f"{name} is {least:g}")
        assert found is not None
        return found


@contextmanager
def running(pipeline: PipelineUnderTest, threads: Threads) -> Iterator[Running]:
    stop, metrics = threading.Event(), Metrics(pipeline.name)
    run = pipeline_on(threads, pipeline.config, pipeline.file, metrics)
    with (
        MetricsServer(metrics, ListenAddress("127.0.0.1", 0)) as server,
        ThreadPoolExecutor(1) as pool,
    ):
        under_way = Running(pipeline, server.url)
        assert under_way.ask("/ready")[0] == 503
        future = pool.submit(run.run, stop.is_set)
        future.add_done_callback(lambda _: stop.set())
        try:
            yield under_way
        finally:
            stop.set()
            future.result(120)


def into_files(pipeline: PipelineUnderTest) -> dict[str, Any]:
    return {"type": "files", "path": str(pipeline.folder / "out"), "format": "ndjson"}


def test_what_is_told_is_what_was_done(pipeline: PipelineUnderTest, threads: Threads) -> None:
    pipeline.execute(
        "CREATE TABLE items (id int PRIMARY KEY, price int)",
        "CREATE TABLE secrets (id int PRIMARY KEY)",
        "INSERT INTO items SELECT n, n FROM generate_series(1, 30) n",
        "INSERT INTO secrets VALUES (1)",
    )
    pipeline.configure(destination=into_files(pipeline), copy=True, batch=SOON)
    pipeline.also(filter=FILTER)
    with running(pipeline, threads) as run:
        wait_until(lambda: run.ask("/ready")[0] == 200, "the pipeline is ready")
        copied = run.scrape()
        assert copied.by("copied_rows_total", "table") == {("public.items",): 20}
        assert copied.by("filtered_changes_total", "table", "reason") == {
            ("public.items", "row"): 10
        }
        assert copied("tables", phase="ready") == 2
        before = copied("received_changes_total"), copied("received_transactions_total")
        pipeline.execute(
            "INSERT INTO items SELECT n, n - 100 FROM generate_series(101, 150) n",
            "UPDATE items SET price = price + 100 WHERE id BETWEEN 101 AND 105",
            "DELETE FROM items WHERE id <= 7",
            "INSERT INTO secrets SELECT generate_series(2, 4)",
            "TRUNCATE secrets",
            "ALTER TABLE items ADD COLUMN note text",
            "INSERT INTO items VALUES (200, 11, 'last')",
        )
        seen = run.wait("delivered_changes_total", 46)
        assert seen.by("delivered_changes_total", "table", "op") == {
            ("public.items", "insert"): 41,
            ("public.items", "update"): 5,
        }
        assert seen.by("filtered_changes_total", "table", "reason") == {
            ("public.items", "row"): 10 + 10,
            ("public.items", "operation"): 7,
            ("public.secrets", "table"): 3 + 1,
        }
        assert seen("schema_changes_total") == 1
        # Rows, one truncate, and the message that tells of the schema change.
        seen = run.wait("received_changes_total", before[0] + 50 + 5 + 7 + 3 + 1 + 1 + 1)
        assert seen("received_changes_total") == before[0] + 68
        assert seen("received_transactions_total") == before[1] + 7
        assert seen("batch_changes_sum") == 46
        assert seen("batch_seconds_count") == seen("batches_total") == seen("commit_seconds_count")
        assert seen("task_seconds_total", stage="read") > 0
        assert seen("failures_total") == seen("retries_total") == 0

        def caught_up() -> bool:
            now = run.scrape()
            return not now("lag_bytes") and not now("lag_seconds")

        wait_until(caught_up, "there is no lag")
        assert run.ask("/health") == (
            200,
            {
                "status": "healthy",
                "reasons": [],
                "seconds_since_progress": pytest.approx(0, abs=60),
            },
        )


def test_a_batch_that_is_tried_again_is_counted_once(
    pipeline: PipelineUnderTest, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the destination had committed it or not when its answer was lost."""
    pipeline.execute("CREATE TABLE items (id int PRIMARY KEY)")
    pipeline.configure(destination=into_files(pipeline), batch=SOON)
    commit = FilesDestination.commit
    fail_before, fail_after = threading.Event(), threading.Event()

    def failing(self: FilesDestination, receipts: Any, *rest: Any) -> None:
        if receipts and fail_before.is_set():
            fail_before.clear()
            raise DestinationUnavailable("it did not answer")
        commit(self, receipts, *rest)
        if receipts and fail_after.is_set():
            fail_after.clear()
            raise DestinationUnavailable("its answer was lost")

    monkeypatch.setattr(FilesDestination, "commit", failing)
    with running(pipeline, threads) as run:
        wait_until(lambda: run.ask("/ready")[0] == 200, "the pipeline is ready")
        fail_before.set()
        pipeline.execute("INSERT INTO items SELECT generate_series(1, 5)")
        seen = run.wait("delivered_changes_total", 5)
        assert seen("delivered_changes_total") == 5
        assert seen("retries_total", component="stream") == 1
        assert seen("failures_total", error="DestinationUnavailable") == 1
        fail_after.set()
        pipeline.execute("INSERT INTO items SELECT generate_series(6, 8)")
        run.wait("retries_total", 2, component="stream")
        pipeline.execute("INSERT INTO items VALUES (9)")
        seen = run.wait("delivered_changes_total", 9)
        assert seen("delivered_changes_total") == 9
        assert seen("batches_total") == 3


def test_health_tells_what_is_gone_and_that_it_came_back(
    database: str,
    target: Target,
    make_pipeline: MakePipeline,
    threads: Threads,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Idle, behind networks that swallow what is said: neither end closes a connection."""
    monkeypatch.setattr(health, "LASTING_SECONDS", 1.5)
    monkeypatch.setattr(pipeline_lock, "LEASE_SECONDS", 2.0)
    monkeypatch.setenv("PENSTOCK_CADENCE", "0.05")  # for capture
    port = target.conn.info.port
    with TcpProxy(port) as source, TcpProxy(port) as destination:
        limits = {"tcp_user_timeout": 3000, "connect_timeout": 2}
        pipeline = make_pipeline(make_conninfo(database, port=source.port, **limits))
        into = make_conninfo(target.url, port=destination.port, **limits)
        pipeline.configure(destination={"type": "postgres", "url": into}, batch=SOON)
        with connect(database) as direct:
            direct.execute("CREATE TABLE items (id int PRIMARY KEY)")

            def told(path: str, *texts: str) -> None:
                def tells() -> bool:
                    status, body = run.ask(path)
                    return status == 503 and any(text in str(body["reasons"]) for text in texts)

                wait_until(tells, f"{path} tells one of {texts}")

            def well() -> None:
                wait_until(lambda: run.ask("/ready")[0] == 200, "/ready is well")
                wait_until(lambda: run.ask("/health")[0] == 200, "/health is well")

            with running(pipeline, threads) as run:
                well()
                destination.swallow()
                told("/ready", "the destination does not answer", "the destination has not")
                told("/health", "the destination does not answer", "the destination has not")
                destination.accept()
                well()
                source.swallow()
                told("/ready", "the source", "capture")
                told("/health", "the source", "capture")
                source.accept()
                well()
                direct.execute("INSERT INTO items VALUES (1)")
                wait_until(lambda: target.rows("items").total() == 1, "the row has come")
