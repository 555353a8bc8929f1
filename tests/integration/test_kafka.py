"""Whole pipelines into a real Kafka broker: what is there, and in which order."""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import Message
from pyspark.sql import DataFrame, SparkSession

from penstock.destination.kafka.sender import KafkaWriter
from penstock.metrics.catalogue import (
    DELIVERED,
    ENCODED_BYTES,
    ENCODED_MESSAGES,
    TASK_SECONDS,
)
from penstock.metrics.pipeline_metrics import Metrics
from penstock.metrics.registry import Registry
from penstock.model.errors import PenstockError
from penstock.model.lsn import Position, parse_lsn
from penstock.spark import jobs
from penstock.spark.lanes import by_lanes
from penstock.spark.task_input import TaskInput
from tests.documented import destination_example
from tests.fix_pipeline import PipelineUnderTest
from tests.kafka_messages import place, read_topics
from tests.kafka_server import KafkaServer
from tests.pipelines import pipeline_on
from tests.threads_engine import Threads


@pytest.fixture(params=[False, True], ids=["plain", "transactional"])
def shop(
    request: pytest.FixtureRequest, pipeline: PipelineUnderTest, kafka_server: KafkaServer
) -> PipelineUnderTest:
    """A pipeline into Kafka, and two tables with some rows."""
    pipeline.configure(
        destination={
            **destination_example("kafka"),
            "brokers": kafka_server.brokers,
            "transactional": request.param,
            "lanes": {"by": "key", "count": 3},
            "topics": {"partitions": 3},
        },
        copy=True,
    )
    pipeline.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
    pipeline.execute("CREATE TABLE notes (id int PRIMARY KEY, body text)")
    pipeline.execute("INSERT INTO items SELECT n, 'old' FROM generate_series(1, 5) n")
    return pipeline


def catch_up(shop: PipelineUnderTest, tasks: SparkSession | Threads) -> Registry:
    """What was counted."""
    metrics = Metrics(shop.name)
    pipeline = pipeline_on(tasks, shop.config, shop.file, metrics)
    pipeline.run(lambda: False, until_caught_up=True)
    return metrics.registry


def messages(shop: PipelineUnderTest, kafka: KafkaServer, topic: str) -> list[Message]:
    return read_topics(kafka.brokers, lambda name: name == f"{shop.name}.{topic}")


def values(found: list[Message]) -> list[dict[str, Any]]:
    """In the order of their changes, and of the messages of one change."""
    return [json.loads(message.value() or b"null") for message in sorted(found, key=place)]


def position(line: dict[str, Any]) -> Position:
    return Position(parse_lsn(line["position"]["commit_lsn"]), line["position"]["ordinal"])


def test_rows_changes_and_schema_changes(
    shop: PipelineUnderTest, kafka_server: KafkaServer, spark: SparkSession
) -> None:
    catch_up(shop, spark)
    with psycopg.connect(shop.url) as conn:
        conn.execute("INSERT INTO items VALUES (6, 'new')")
        conn.execute("ALTER TABLE items ADD COLUMN price numeric(10,2)")
        conn.execute("UPDATE items SET price = 9.50 WHERE id = 6")
        conn.execute("UPDATE items SET id = 7 WHERE id = 6")
        conn.execute("DELETE FROM items WHERE id = 1")
        conn.execute("INSERT INTO notes VALUES (1, 'a note')")
    counted = catch_up(shop, spark)
    # A key that changes is two messages.
    assert counted.total(DELIVERED) == 5
    assert counted.total(ENCODED_MESSAGES) == 6
    items = values(messages(shop, kafka_server, "public.items"))
    copied = [(line["key"]["id"], line["new"]) for line in items if line["op"] == "read"]
    assert sorted(copied, key=str) == [(n, {"id": n, "name": "old"}) for n in range(1, 6)]
    assert [(line["op"], line["key"]) for line in items if line["op"] != "read"] == [
        ("insert", {"id": 6}),
        ("update", {"id": 6}),
        ("delete", {"id": 6}),  # from there it has gone
        ("update", {"id": 7}),
        ("delete", {"id": 1}),
    ]
    assert items[6]["new"] == {"id": 6, "name": "new", "price": "9.50"}
    (note,) = values(messages(shop, kafka_server, "public.notes"))
    assert note["new"] == {"id": 1, "body": "a note"}
    (event,) = values(messages(shop, kafka_server, "schema"))
    assert event["changes"] == ["column price numeric(10,2) added"]
    assert position(items[5]) < position(event) < position(items[6])


@pytest.mark.parametrize("copy", [True, False])
def test_columns_keep_their_numbers_and_schema_events_have_topics_of_their_tables(
    pipeline: PipelineUnderTest, kafka_server: KafkaServer, threads: Threads, *, copy: bool
) -> None:
    """Rows before and behind a rename in one transaction, and a table that is renamed; all of it
    while the pipeline is stopped.
    """
    pipeline.configure(
        destination={
            **destination_example("kafka"),
            "brokers": kafka_server.brokers,
            "penstock": {"column_ids": True},
            "schema_topic": "{pipeline}.ddl.{schema}.{table}",
        },
        copy=copy,
    )
    pipeline.execute("CREATE TABLE items (gone int, id int PRIMARY KEY, name text)")
    pipeline.execute("ALTER TABLE items DROP COLUMN gone")
    catch_up(pipeline, threads)
    with psycopg.connect(pipeline.url) as conn:
        conn.execute("INSERT INTO items VALUES (1, 'a')")
        conn.execute("ALTER TABLE items RENAME COLUMN name TO title")
        conn.execute("INSERT INTO items VALUES (2, 'b')")
        conn.commit()
        conn.execute("ALTER TABLE items RENAME TO goods")
        conn.execute("INSERT INTO goods VALUES (3, 'c')")
    catch_up(pipeline, threads)
    rows = values(messages(pipeline, kafka_server, "public.items"))
    rows += values(messages(pipeline, kafka_server, "public.goods"))
    assert [row["columns"] for row in rows] == [
        {"id": 2, "name": 3},
        {"id": 2, "title": 3},
        {"id": 2, "title": 3},
    ]
    assert len({row["table_id"] for row in rows}) == 1
    (column,) = values(messages(pipeline, kafka_server, "ddl.public.items"))
    (table,) = values(messages(pipeline, kafka_server, "ddl.public.goods"))
    assert column["changes"] == ["column name renamed to title"]
    assert {row["table_id"] for row in rows} == {column["table_id"], table["table_id"]}
    assert [(c["id"], c["name"]) for c in column["columns"]] == [(2, "id"), (3, "title")]


@pytest.mark.parametrize(
    "alone", [True, pytest.param(False, marks=pytest.mark.release)], ids=["one task", "several"]
)
def test_large_batches_keep_the_order_of_every_key(
    shop: PipelineUnderTest,
    kafka_server: KafkaServer,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
    alone: bool,
) -> None:
    """Batches of one task, and of several, whose changes come together again lane by lane."""
    monkeypatch.setattr(KafkaWriter, "in_one_task", alone)
    split: list[int] = []

    def noted(spark: SparkSession, tasks: Sequence[TaskInput], *others: Any) -> DataFrame:
        split.append(len(tasks))
        return by_lanes(spark, tasks, *others)

    monkeypatch.setattr(jobs, "by_lanes", noted)
    shop.configure(
        destination=shop.config.destination,
        copy=True,
        segment_bytes="1MiB",
    )
    catch_up(shop, spark)
    count = 400
    with psycopg.connect(shop.url) as conn:
        conn.execute("INSERT INTO notes SELECT n, 'first' FROM generate_series(1, %s) n", [count])
        for _ in range(20):
            conn.execute("UPDATE notes SET body = repeat(md5(random()::text), 40)")
            conn.commit()
        conn.execute("UPDATE notes SET body = 'last'")
    counted = catch_up(shop, spark)
    assert bool(split) is not alone
    assert counted.total(DELIVERED, table="public.notes", op="insert") == count
    assert counted.total(DELIVERED, table="public.notes", op="update") == 21 * count
    assert counted.total(ENCODED_MESSAGES) == 22 * count
    assert counted.total(ENCODED_BYTES) > 20 * count * 1280
    for stage in ("read", "encode", "write", *(() if alone else ("shuffle",))):
        assert counted.total(TASK_SECONDS, stage=stage) > 0
    by_key: dict[bytes, list[dict[str, Any]]] = defaultdict(list)
    partitions: dict[bytes, set[int | None]] = defaultdict(set)
    for message in messages(shop, kafka_server, "public.notes"):
        key, value = message.key(), message.value()
        assert key is not None
        assert value is not None
        by_key[key].append(json.loads(value))
        partitions[key].add(message.partition())
    assert len(by_key) == count
    assert all(len(places) == 1 for places in partitions.values())
    assert len({*map(frozenset, partitions.values())}) == 3
    for changes in by_key.values():
        positions = [position(change) for change in changes]
        assert positions == sorted(set(positions))
        assert len(changes) == 22
        assert changes[0]["op"] == "insert"
        assert changes[-1]["new"]["body"] == "last"


@pytest.mark.parametrize(
    "shop",
    [pytest.param(False, marks=pytest.mark.release), True],
    ids=["plain", "transactional"],
    indirect=True,
)
def test_a_row_of_20_mb(
    shop: PipelineUnderTest, kafka_server: KafkaServer, threads: Threads, tmp_path: Path
) -> None:
    """An error as it stands; put aside, or delivered whole, where that is configured."""
    size = 20_000_000

    def configure(**options: Any) -> None:
        given = {**shop.config.destination_options, **options}
        shop.configure(destination={"type": "kafka", **given}, copy=True)

    catch_up(shop, threads)
    shop.execute("INSERT INTO notes VALUES (1, repeat('x', 20000000))")
    with pytest.raises(PenstockError, match=r"table public\.notes at .* has 20,0.* bytes") as error:
        catch_up(shop, threads)
    assert "claim_check" in error.value.remedy
    configure(oversize={"claim_check": str(tmp_path / "claims")})
    catch_up(shop, threads)
    (check,) = values(messages(shop, kafka_server, "public.notes"))
    content = Path(check["claim_check"]["path"]).read_bytes()
    assert hashlib.sha256(content).hexdigest() == check["claim_check"]["sha256"]
    assert json.loads(content)["new"]["body"] == "x" * size
    # A topic of its own that takes as much.
    configure(
        topic="{pipeline}.large",
        max_message_bytes="24MB",
        topics={"partitions": 1, "config": {"max.message.bytes": 25_000_000}},
    )
    shop.execute("UPDATE notes SET body = body || 'y'")
    catch_up(shop, threads)
    (line,) = values(messages(shop, kafka_server, "large"))
    assert line["new"]["body"] == "x" * size + "y"
