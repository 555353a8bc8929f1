"""Whole pipelines whose change log is in an object store."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import psycopg
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from penstock.changelog.changelog import ChangeLog
from penstock.cli.main import app
from penstock.pipeline.run.pipeline import Pipeline
from tests.crash.penstock_run import WITHOUT_SPARK, PenstockRun
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.integration.copied_tables import CopiedTables, Writers
from tests.integration.many_destinations import ManyDestinations
from tests.objects_proxy import PAID, Fault
from tests.objects_server import SECRET, ObjectServer
from tests.pipelines import engine_on

ITEMS = (
    "CREATE TABLE items (id int PRIMARY KEY, name text)",
    "INSERT INTO items SELECT n, 'old' FROM generate_series(1, 1000) n",
)
BUSY_SECONDS, IDLE_SECONDS = 8.0, 12.0


@pytest.fixture
def shop(
    pipeline: PipelineUnderTest, target_url: str, spark: SparkSession, object_server: ObjectServer
) -> CopiedTables:
    pipeline.execute(*ITEMS)
    pipeline.log = ChangeLog(f"{object_server.place()}/log", object_server.options)
    shop = CopiedTables(pipeline, target_url, spark)
    shop.configure()
    pipeline.also(change_log={"path": pipeline.log.root.path, "options": object_server.options})
    return shop


def test_rows_changes_restarts_and_an_end(shop: CopiedTables, object_server: ObjectServer) -> None:
    checked = CliRunner().invoke(app, ["check", str(shop.pipeline.file)])
    assert f"passed   change log: {shop.pipeline.log.root.path}" in checked.output, checked.output
    shop.run_until_caught_up()
    assert shop.is_equal("items")
    # The first answers are lost, or there are none.
    failures = iter([Fault(503), Fault(answer_lost=True)] * 6)
    object_server.proxy.set(lambda kind, _path: next(failures, None) if kind == "PUT" else None)
    shop.pipeline.execute(
        "UPDATE items SET name = 'new' WHERE id < 100", "DELETE FROM items WHERE id > 900"
    )
    shop.run_until_caught_up()
    assert shop.is_equal("items")
    shown = CliRunner().invoke(app, ["log", "inspect", str(shop.pipeline.file)])
    assert "segments" in shown.output
    status = CliRunner().invoke(app, ["status", str(shop.pipeline.file)])
    assert "capture       stopped" in status.output, status.output
    for output in (checked.output, shown.output, status.output, *shop.said):
        assert SECRET not in output
    done = CliRunner().invoke(app, ["destroy", str(shop.pipeline.file), "--yes"])
    assert done.exit_code == 0, done.output
    assert shop.pipeline.log.root.entries() == set()


def test_what_is_paid_for(
    shop: CopiedTables, object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most six full-price requests a second under load, and one while nothing happens."""
    monkeypatch.setenv("PENSTOCK_CADENCE", "1")  # capture as its users have it

    with shop.running() as run:
        shop.wait(run, lambda: shop.phases() == {"public.items": "ready"}, "the table is copied")
        expect_cheap(
            object_server,
            shop.pipeline.url,
            lambda: shop.wait(run, lambda: shop.is_equal("items"), "all is delivered"),
        )


def test_what_is_paid_for_by_three_destinations(
    pipeline: PipelineUnderTest, target_url: str, object_server: ObjectServer
) -> None:
    """No more than by one: who starts them lists for all."""
    pipeline.execute(
        "CREATE TABLE items (id bigint PRIMARY KEY, note text, body text, name text)",
        "INSERT INTO items SELECT n, 'note', 'body', 'old' FROM generate_series(1, 1000) n",
    )
    pipeline.log = ChangeLog(f"{object_server.place()}/log", object_server.options)
    many, names = ManyDestinations(pipeline, target_url), ("warehouse", "lake", "tables")
    many.configure(*names, options=object_server.options)
    environment = {**WITHOUT_SPARK, "PENSTOCK_CADENCE": "1"}
    run = PenstockRun(pipeline.file, environment=environment)

    def wait(condition: Callable[[], bool], what: str) -> None:
        def met() -> bool:
            run.expect_running()
            return condition()

        wait_until(met, what)

    def wait_equal() -> None:
        for name in names:
            wait(partial(many.is_equal, name, "items"), f"{name} holds all")

    try:
        wait(lambda: many.are_ready(*names), "the tables are copied")
        expect_cheap(object_server, pipeline.url, wait_equal)
        # Its barrier reaches the planner by the listing of another process.
        with Writers(pipeline.url):
            verified = many.command("verify", "FILE", "--only", "warehouse")
        assert "equal: 1 tables" in verified
        run.stop()
    except BaseException:
        print(run.output[-5000:])
        raise
    finally:
        run.end()


def expect_cheap(
    objects: ObjectServer, source_url: str, wait_delivered: Callable[[], None]
) -> None:
    """At most six paid requests a second while rows change all the time, and one afterwards."""

    def rate(began: float) -> tuple[float, Counter[str]]:
        counts = Counter(objects.proxy.counts)
        return sum(counts[kind] for kind in PAID) / (time.monotonic() - began), counts

    objects.proxy.counts.clear()
    began = time.monotonic()
    with psycopg.connect(source_url, autocommit=True) as conn:
        while time.monotonic() < began + BUSY_SECONDS:
            conn.execute("UPDATE items SET name = name || 'x' WHERE id = 1")
            time.sleep(0.01)
    busy, counts = rate(began)
    print(f"busy: {busy:.2f} paid requests/s", counts)
    assert busy <= 6, counts
    assert counts["PUT"] > BUSY_SECONDS, "there was something to pay for"
    wait_delivered()
    time.sleep(6)
    objects.proxy.counts.clear()
    began = time.monotonic()
    time.sleep(IDLE_SECONDS)
    idle, counts = rate(began)
    print(f"idle: {idle:.2f} paid requests/s", counts)
    assert idle <= 1, counts


@pytest.mark.release
def test_capture_and_run_apart(shop: CopiedTables, spark: SparkSession) -> None:
    """As on two machines: all they share are source, destination and bucket."""
    init = CliRunner().invoke(app, ["init", str(shop.pipeline.file)])
    assert init.exit_code == 0, init.output
    capture = shop.pipeline.start_capture(supervised=False)
    pipeline = Pipeline(shop.pipeline.config, shop.pipeline.file, engine_on(spark), captures=False)
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(pipeline.run, stop.is_set)
        try:
            shop.wait(run, lambda: shop.phases() == {"public.items": "ready"}, "it is copied")
            shop.pipeline.execute("UPDATE items SET name = 'new' WHERE id < 500")
            shop.wait(run, lambda: shop.is_equal("items"), "the changes are there")
            # One of the two dies, and comes back.
            capture.kill()
            shop.pipeline.execute("DELETE FROM items WHERE id < 200")
            shop.pipeline.start_capture(supervised=False)
            shop.wait(run, lambda: shop.is_equal("items"), "the changes are there")
            end = shop.pipeline.wal_end()
            wait_until(lambda: shop.pipeline.confirmed >= end, "the slot follows")
        finally:
            stop.set()
    run.result()
    status = CliRunner().invoke(app, ["status", str(shop.pipeline.file)])
    assert re.search(r"capture +streaming, process \d+ on ", status.output), status.output
    assert re.search(r"reader .* as process \d+ on ", status.output), status.output
