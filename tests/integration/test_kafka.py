"""Whole pipelines into a real Kafka broker: what is there, and in which order."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from confluent_kafka import Message
from pyspark.sql import DataFrame, SparkSession

from penstock.lsn import Position, parse_lsn
from penstock.pipeline.run import Pipeline
from penstock.spark import query
from tests.fix_pipeline import PipelineUnderTest
from tests.kafka_messages import place, read_topics
from tests.kafka_server import KafkaServer

pytestmark = pytest.mark.newest_postgres


@pytest.fixture(params=[False, True], ids=["plain", "transactional"])
def shop(
    request: pytest.FixtureRequest, pipeline: PipelineUnderTest, kafka_server: KafkaServer
) -> PipelineUnderTest:
    """A pipeline into Kafka, and two tables with some rows."""
    pipeline.configure(
        destination={
            **documented_example(),
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


def documented_example() -> dict[str, Any]:
    """The minimal part of a pipeline file that the docs show."""
    page = (Path(__file__).parents[2] / "docs/destinations/kafka.md").read_text()
    found: dict[str, Any] = yaml.safe_load(page.split("```yaml")[1].split("```")[0])
    return dict(found["destination"])


def catch_up(shop: PipelineUnderTest, spark: SparkSession) -> None:
    Pipeline(shop.config, shop.file, say=lambda _: None).run(
        lambda: False, until_caught_up=True, spark=spark
    )


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
    catch_up(shop, spark)
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


def test_columns_keep_their_numbers_and_schema_events_have_topics_of_their_tables(
    pipeline: PipelineUnderTest, kafka_server: KafkaServer, spark: SparkSession
) -> None:
    """Rows before and behind a rename in one transaction, and a table that is renamed."""
    pipeline.configure(
        destination={
            **documented_example(),
            "brokers": kafka_server.brokers,
            "penstock": {"column_ids": True},
            "schema_topic": "{pipeline}.ddl.{schema}.{table}",
        },
        copy=True,
    )
    pipeline.execute("CREATE TABLE items (gone int, id int PRIMARY KEY, name text)")
    pipeline.execute("ALTER TABLE items DROP COLUMN gone")
    catch_up(pipeline, spark)
    with psycopg.connect(pipeline.url) as conn:
        conn.execute("INSERT INTO items VALUES (1, 'a')")
        conn.execute("ALTER TABLE items RENAME COLUMN name TO title")
        conn.execute("INSERT INTO items VALUES (2, 'b')")
        conn.commit()
        conn.execute("ALTER TABLE items RENAME TO goods")
        conn.execute("INSERT INTO goods VALUES (3, 'c')")
    catch_up(pipeline, spark)
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


def test_large_batches_keep_the_order_of_every_key(
    shop: PipelineUnderTest,
    kafka_server: KafkaServer,
    spark: SparkSession,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Batches of several tasks, whose changes come together again lane by lane."""
    split: list[bool] = []
    ask = query._has_several_tasks

    def noted(batch: DataFrame) -> bool:
        split.append(ask(batch))
        return split[-1]

    monkeypatch.setattr(query, "_has_several_tasks", noted)
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
    catch_up(shop, spark)
    assert any(split)
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
