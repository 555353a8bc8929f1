"""Deliveries that are killed, a whole pipeline, and many subscriptions."""

from __future__ import annotations

import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
import yaml
from psycopg.conninfo import make_conninfo
from pyspark.sql import SparkSession

from penstock.config import load_pipeline
from penstock.embedded.postgres import EmbeddedPostgres
from penstock.testing.change_builder import Column, table
from penstock.testing.contract.deliveries import definition, deliver
from tests.documented import destination_example
from tests.fix_pipeline import PipelineUnderTest
from tests.http_get import http_get
from tests.many_receivers import many_receivers
from tests.pipelines import pipeline_on
from tests.tcp_proxy import TcpProxy
from tests.webhook_receiver import Receiver, wait_until
from tests.webhook_shop import KEY, PIPELINE, Shop


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as receiver:
        yield receiver


@pytest.mark.parametrize("place", ["webhooks.answered", "webhooks.saved"])
def test_a_deliverer_that_is_killed_loses_nothing(
    database: str, tmp_path: Path, receiver: Receiver, place: str
) -> None:
    shop = Shop(database, tmp_path / "outbox", receiver, deliver="serve")
    for path in ("/one", "/two"):
        shop.add(path)
    shop.start()
    for batch in range(4):
        shop.insert(batch * 50, 50)
    for passes in (2, 40):
        failpoints = f"{place}=kill:{passes if place == 'webhooks.answered' else 2}"
        with served(database, tmp_path, failpoints=failpoints) as (killed, _):
            assert killed.wait(120) == -9
    with served(database, tmp_path) as (last, address):
        for path in ("/one", "/two"):
            wait_until(lambda path=path: set(shop.ids(path)) == set(range(200)), 60)  # type: ignore[misc]
        # Those before it may have delivered everything.
        wait_until(lambda: answers(address), 60)
        assert (
            "penstock_webhook_delivered_events_total" in http_get(f"http://{address}/metrics").text
        )
        assert json.loads(http_get(f"http://{address}/health").text)["status"] == "healthy"
        last.terminate()
        assert last.wait(60) == 0
    assert all(kept.behind == 0 for kept in shop.subscriptions.all())
    shop.close()


def test_serve_waits_for_a_database_that_is_away(
    pg_server: EmbeddedPostgres, database: str, tmp_path: Path, receiver: Receiver
) -> None:
    """Machines start their services in any order."""
    shop = Shop(database, tmp_path / "outbox", receiver, deliver="serve")
    shop.add("/hook")
    shop.start()
    shop.insert(0, 10)
    with TcpProxy(pg_server.port) as network:
        network.refuse()
        url = make_conninfo(database, host="127.0.0.1", port=network.port)
        with served(url, tmp_path) as (waiting, address):
            wait_until(lambda: "nothing is delivered" in health(address), 60)
            waiting.terminate()
            assert waiting.wait(60) == 0
        with served(url, tmp_path) as (_, address):
            wait_until(lambda: "nothing is delivered" in health(address), 60)
            network.accept()
            wait_until(lambda: answers(address), 60)
            wait_until(lambda: set(shop.ids("/hook")) == set(range(10)), 60)
    shop.close()


@contextmanager
def served(
    database: str, folder: Path, *, failpoints: str = "", **more: object
) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """`penstock webhooks serve`, for a shop with its outbox in ``folder / "outbox"``, and the
    address of its metrics. It does not outlive the test.
    """
    address = f"127.0.0.1:{free_port()}"
    file = folder / "shop.yaml"
    document = {
        "name": PIPELINE,
        "source": {"url": "postgresql://localhost/nowhere"},
        "destination": {
            "type": "webhooks",
            "url": database,
            "path": str(folder / "outbox"),
            "secret_key": KEY,
            "allow": ["127.0.0.0/8"],
            "http": True,
            "deliver": "serve",
            **more,
        },
    }
    file.write_text(yaml.safe_dump(document))
    command = [sys.executable, "-m", "penstock", "webhooks", "serve", str(file)]
    with subprocess.Popen(
        [*command, "--metrics", address],
        env={**os.environ, "PENSTOCK_FAILPOINTS": failpoints},
        stderr=subprocess.DEVNULL,
    ) as process:
        try:
            yield process, address
        finally:
            process.kill()


def answers(address: str) -> bool:
    try:
        return http_get(f"http://{address}/health").status == 200
    except ConnectionRefusedError:
        return False


def health(address: str) -> str:
    try:
        return http_get(f"http://{address}/health").text
    except ConnectionRefusedError:
        return ""


def test_the_documented_pipeline(
    pipeline: PipelineUnderTest,
    spark: SparkSession,
    database: str,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows that are there, changes and a schema change, by the YAML of the page."""
    monkeypatch.setenv("STORE_URL", database)
    monkeypatch.setenv("PENSTOCK_WEBHOOKS_KEY", KEY)
    monkeypatch.setenv("PENSTOCK_WEBHOOKS_TOKEN", "a token of some length")
    example = destination_example("webhooks")
    pipeline.configure(
        destination={
            **example,
            "api": {**example["api"], "listen": "127.0.0.1:0"},
            "path": str(pipeline.folder / "outbox"),
            "allow": ["127.0.0.0/8"],
            "http": True,
        },
        copy=True,
    )
    pipeline.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
    pipeline.execute("INSERT INTO items SELECT n, 'old' FROM generate_series(1, 5) n")
    shop = Shop(database, pipeline.folder / "outbox", receiver, name=pipeline.name)
    shop.add("/all")
    shop.add("/new", operations=["insert"], tables=["public.items"])

    def catch_up() -> None:
        config = load_pipeline(pipeline.file)
        run = pipeline_on(spark, config, pipeline.file)
        run.run(lambda: False, until_caught_up=True)

    catch_up()
    with psycopg.connect(pipeline.url) as conn:
        conn.execute("INSERT INTO items VALUES (6, 'new')")
        conn.execute("ALTER TABLE items ADD COLUMN price numeric(10,2)")
        conn.execute("UPDATE items SET price = 9.50 WHERE id = 6")
        conn.execute("DELETE FROM items WHERE id = 1")
    catch_up()
    events = shop.events("/all")
    assert sorted(e["new"]["id"] for e in events if e["op"] == "read") == [1, 2, 3, 4, 5]
    told = [event["op"] for event in events if event["op"] != "read"]
    assert sorted(told) == ["delete", "insert", "schema", "update"]
    assert [event["new"]["id"] for event in shop.events("/new")] == [6]
    shop.close()


@pytest.mark.release
def test_a_thousand_subscriptions_a_hundred_of_them_dead(
    database: str, tmp_path: Path, receiver: Receiver, capsys: pytest.CaptureFixture[str]
) -> None:
    """2,000 events a second for a while; prints how long deliveries took, and judges that where
    the machine has nothing else to do. The dead refuse, hang, or are not there at all. Who delivers
    is a process of its own: this one encodes, as tasks of Spark do in theirs.
    """
    seconds, rate, many = 20, 2000, 1000
    is_idle = os.getloadavg()[0] <= (os.cpu_count() or 1)
    kinds = {n: ("refuses", "hangs", "absent")[n // 10 % 3] for n in range(0, many, 10)}
    dead = {kind: [n for n in kinds if kinds[n] == kind] for kind in set(kinds.values())}
    assert {kind: len(numbers) for kind, numbers in dead.items()} == {
        "refuses": 34,
        "hangs": 33,
        "absent": 33,
    }
    shop = Shop(database, tmp_path / "outbox", receiver, deliver="serve")
    absent = free_port()
    with (
        many_receivers(refuse=dead["refuses"], hang=dead["hangs"]) as receivers,
        served(database, tmp_path, timeout=5.0, retry={"first": 1.0, "longest": 10.0}) as served_at,
    ):
        service, address = served_at
        for number in range(many):
            is_absent = number in dead["absent"]
            url = f"http://127.0.0.1:{absent}/{number}" if is_absent else receivers.url(number)
            shop.add(f"/{number}", url=url, tables=[f"public.t{number}"])
        destination = shop.start()
        tables = [
            table(f"t{number}", Column("id", "int8", key=True), Column("at", "text"))
            for number in range(many)
        ]
        destination.prepare([definition(of) for of in tables])
        wait_until(lambda: answers(address), 60)
        began, sent = time.time(), 0
        while sent < seconds * rate:
            due = int((time.time() - began) * rate)
            if due - sent < rate // 5:
                time.sleep(0.01)
                continue
            with shop.builder.transaction():
                for number in range(sent, min(due, seconds * rate)):
                    shop.builder.insert(tables[number % many], str(number), repr(time.time()))
            sent = min(due, seconds * rate)
            deliver(destination, shop.builder.frontier, [shop.builder.cut()])
        living = seconds * rate * 9 // 10
        wait_until(lambda: receivers.count() >= living, 300)
        took = sorted(got.came_at - got.made_at for got in receivers.taken())
        p99 = took[int(len(took) * 0.99)]
        with capsys.disabled():
            print(
                f"\nwebhooks: {len(took)} deliveries, p50 {statistics.median(took):.2f} s, "
                f"p99 {p99:.2f} s, last {took[-1]:.2f} s, load {os.getloadavg()[0]:.0f}"
                + ("" if is_idle else " (others ran beside it: not judged)")
            )
        assert not is_idle or p99 <= 2.0
        receivers.revive()
        with many_receivers(absent) as late:
            wait_until(lambda: receivers.count() + late.count() >= seconds * rate, 300)
            ids = {got.id for got in [*receivers.taken(), *late.taken()]}
            assert len(ids) == seconds * rate
            service.terminate()
            assert service.wait(60) == 0
    shop.close()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])
