"""Whole pipelines into Kinesis, whose records fail: what is there, and in which order."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from penstock.destination.registry import make_destination
from penstock.metrics.catalogue import RESENT
from penstock.metrics.pipeline_metrics import Metrics
from penstock.model.errors import DestinationError, DestinationUnavailable, PenstockError
from tests.documented import destination_example
from tests.fix_pipeline import PipelineUnderTest
from tests.kinesis_proxy import Faults
from tests.kinesis_records import StoredRecord, check_order, place, read_streams
from tests.kinesis_server import KinesisServer
from tests.pipelines import pipeline_on
from tests.queue_events import Event
from tests.threads_engine import Threads

_LARGE = 20 * 10**6


@pytest.fixture
def shop(pipeline: PipelineUnderTest, kinesis_server: KinesisServer) -> PipelineUnderTest:
    """A pipeline into Kinesis, and two tables with some rows."""
    configure(pipeline, kinesis_server)
    pipeline.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
    pipeline.execute("CREATE TABLE notes (id int PRIMARY KEY, body text)")
    pipeline.execute("INSERT INTO items SELECT n, 'old' FROM generate_series(1, 5) n")
    return pipeline


def configure(pipeline: PipelineUnderTest, server: KinesisServer, **options: Any) -> None:
    pipeline.configure(
        destination={
            **destination_example("kinesis"),
            **server.destination,
            "streams": {"shards": 2},
            **options,
        },
        copy=True,
    )


def catch_up(shop: PipelineUnderTest, tasks: SparkSession | Threads) -> int:
    """How many messages were counted as sent again."""
    metrics = Metrics(shop.name)
    run = pipeline_on(tasks, shop.config, shop.file, metrics)
    run.run(lambda: False, until_caught_up=True)
    return int(metrics.registry.total(RESENT))


def stored(shop: PipelineUnderTest, server: KinesisServer) -> list[StoredRecord]:
    found = read_streams(server, lambda name: name == shop.name)
    check_order(found)
    return found


def events(records: list[StoredRecord]) -> list[Event]:
    """In the order of their changes."""
    return sorted((event for record in records for event in record.events), key=place)


def test_rows_changes_and_schema_changes(
    shop: PipelineUnderTest, kinesis_server: KinesisServer, spark: SparkSession
) -> None:
    catch_up(shop, spark)
    with psycopg.connect(shop.url) as conn:
        conn.execute("INSERT INTO items VALUES (6, 'new')")
        conn.execute("ALTER TABLE items ADD COLUMN price numeric(10,2)")
        conn.execute("UPDATE items SET price = 9.50 WHERE id = 6")
        conn.execute("UPDATE items SET id = 7 WHERE id = 6")
        conn.execute("DELETE FROM items WHERE id = 1")
    catch_up(shop, spark)
    found = events(stored(shop, kinesis_server))
    copied = sorted((event["key"]["id"], event["new"]) for event in found if event["op"] == "read")
    assert copied == [(str(n), {"id": str(n), "name": "old"}) for n in range(1, 6)]
    told = [event["op"] for event in found if event["op"] != "read"]
    assert told[:3] == ["insert", "schema", "update"]
    assert sorted(told[3:5]) == ["delete", "update"]  # the row left its key
    assert told[5:] == ["delete"]


@pytest.mark.parametrize("aggregate", [False, True], ids=["single", "aggregated"])
def test_strict_order_per_key_while_two_of_five_records_fail(
    shop: PipelineUnderTest,
    kinesis_server: KinesisServer,
    threads: Threads,
    *,
    aggregate: bool,
) -> None:
    configure(shop, kinesis_server, lanes={"by": "key", "count": 4}, aggregate=aggregate)
    kinesis_server.proxy.set(Faults(records=0.4, calls=0.1), seed=11)
    resent = catch_up(shop, threads)
    count, rounds = 150, 8
    with psycopg.connect(shop.url) as conn:
        conn.execute("INSERT INTO notes SELECT n, 'first' FROM generate_series(1, %s) n", [count])
        for number in range(rounds):
            conn.execute("UPDATE notes SET body = %s", [f"round {number}"])
            conn.commit()
        conn.execute("DELETE FROM notes WHERE id <= 10")
    resent += catch_up(shop, threads)
    happened = kinesis_server.proxy.counts
    assert resent >= happened["failed"]
    assert happened["failed"] > 0.3 * happened["records"] > 0
    assert happened["throttled"] > 0
    assert not happened["doubled"], "two records of a key in one call"
    records = stored(shop, kinesis_server)
    assert len({record.shard for record in records}) == 2
    by_key: dict[str, list[Event]] = defaultdict(list)
    for record in records:
        by_key[record.key] += record.events
    for key in range(1, count + 1):
        changes = by_key[f'public.notes:{{"id":{key}}}']
        # Nothing crashed, and no answer was lost: nothing comes twice.
        places = [place(change) for change in changes]
        assert places == sorted(set(places))
        bodies = ["first", *(f"round {number}" for number in range(rounds))]
        assert [change["new"]["body"] for change in changes if change["new"]] == bodies
        assert (changes[-1]["op"] == "delete") is (key <= 10)


def test_answers_that_are_lost(
    shop: PipelineUnderTest, kinesis_server: KinesisServer, threads: Threads
) -> None:
    """What was there already comes again, in order."""
    catch_up(shop, threads)
    kinesis_server.proxy.set(Faults(records=0.2, answers=0.3, connections=0.2), seed=5)
    with psycopg.connect(shop.url) as conn:
        for number in range(10):
            conn.execute("UPDATE items SET name = %s", [f"round {number}"])
            conn.commit()
    catch_up(shop, threads)
    assert kinesis_server.proxy.counts["lost"] > 0
    found = events(stored(shop, kinesis_server))
    updates = {(place(e), e["key"]["id"]) for e in found if e["op"] == "update"}
    assert len(updates) == 50


def test_a_stream_a_table_and_debezium(
    shop: PipelineUnderTest, kinesis_server: KinesisServer, threads: Threads
) -> None:
    configure(shop, kinesis_server, stream="{pipeline}.{table}", format="debezium")
    catch_up(shop, threads)
    shop.execute("DELETE FROM items WHERE id = 1")
    catch_up(shop, threads)
    found = read_streams(kinesis_server, lambda name: name == f"{shop.name}.items")
    # No tombstone behind the delete.
    assert sorted(json.loads(record.data)["op"] for record in found) == ["d", *("r" * 5)]


def test_a_row_of_20_mb(
    shop: PipelineUnderTest, kinesis_server: KinesisServer, threads: Threads, tmp_path: Path
) -> None:
    catch_up(shop, threads)
    shop.execute("INSERT INTO notes VALUES (1, repeat('x', 20000000))")
    with pytest.raises(PenstockError, match=r"table public\.notes at .* has 20,0.* bytes") as error:
        catch_up(shop, threads)
    assert "claim_check" in error.value.remedy
    claims = tmp_path / "claims"
    configure(shop, kinesis_server, oversize={"claim_check": str(claims)})
    catch_up(shop, threads)
    (event,) = (e for e in events(stored(shop, kinesis_server)) if e["table"] == "notes")
    assert event["key"] == {"id": "1"}
    content = Path(event["claim_check"]["path"]).read_bytes()
    assert hashlib.sha256(content).hexdigest() == event["claim_check"]["sha256"]
    assert json.loads(content)["new"]["body"] == "x" * _LARGE


def test_check(shop: PipelineUnderTest, kinesis_server: KinesisServer) -> None:
    def check(**options: Any) -> None:
        given = {**kinesis_server.destination, **options}
        make_destination("kinesis", given, shop.name).check()

    check()
    check(stream="{table}")
    with pytest.raises(DestinationError, match=f"stream {shop.name} does not exist") as error:
        check(streams={"create": False})
    assert "streams.create" in error.value.remedy


def test_check_where_nobody_listens(kinesis_server: KinesisServer) -> None:
    given = {**kinesis_server.destination, "endpoint_url": "http://127.0.0.1:1"}
    with pytest.raises(DestinationUnavailable, match="asking for stream"):
        make_destination("kinesis", given, "shop").check()
