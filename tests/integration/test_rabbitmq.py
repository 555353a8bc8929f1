"""Whole pipelines into RabbitMQ: rows that were there, changes, schema changes."""

from __future__ import annotations

import json
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession

from penstock.metrics.catalogue import RESENT, UNROUTABLE
from penstock.metrics.pipeline_metrics import Metrics
from penstock.model.errors import PenstockError
from tests.documented import destination_example
from tests.fix_pipeline import PipelineUnderTest
from tests.pipelines import pipeline_on
from tests.rabbitmq_messages import BoundQueue, StoredMessage, check_order
from tests.rabbitmq_server import RabbitServer
from tests.threads_engine import Threads


@pytest.fixture
def shop(pipeline: PipelineUnderTest, rabbit_server: RabbitServer) -> PipelineUnderTest:
    """A pipeline into RabbitMQ, and a table with some rows."""
    configure(pipeline, rabbit_server)
    pipeline.execute("CREATE TABLE items (id int PRIMARY KEY, name text)")
    pipeline.execute("INSERT INTO items SELECT n, 'old' FROM generate_series(1, 5) n")
    return pipeline


def configure(pipeline: PipelineUnderTest, server: RabbitServer, **options: Any) -> None:
    pipeline.configure(
        destination={**destination_example("rabbitmq"), **server.destination, **options}, copy=True
    )


def catch_up(shop: PipelineUnderTest, tasks: SparkSession | Threads) -> Metrics:
    metrics = Metrics(shop.name)
    pipeline_on(tasks, shop.config, shop.file, metrics).run(lambda: False, until_caught_up=True)
    return metrics


def in_order(messages: list[StoredMessage]) -> list[StoredMessage]:
    check_order(messages)
    return sorted(messages, key=lambda message: message.place)


def test_rows_changes_and_schema_changes(
    shop: PipelineUnderTest, rabbit_server: RabbitServer, spark: SparkSession
) -> None:
    with pytest.raises(PenstockError, match=r"no queue gets .* 'public\.items\.read'"):
        catch_up(shop, spark)
    queue = BoundQueue(rabbit_server, shop.name)
    catch_up(shop, spark)
    with psycopg.connect(shop.url) as conn:
        conn.execute("INSERT INTO items VALUES (6, 'new')")
        conn.execute("ALTER TABLE items ADD COLUMN price numeric(10,2)")
        conn.execute("UPDATE items SET price = 9.50 WHERE id = 6")
        conn.execute("UPDATE items SET id = 7 WHERE id = 6")
        conn.execute("DELETE FROM items WHERE id = 1")
    catch_up(shop, spark)
    found = in_order(queue.messages())
    copied = {message.properties.message_id: message for message in found if _op(message) == "read"}
    assert sorted(message.event["new"]["id"] for message in copied.values()) == list("12345")
    assert {message.routing_key for message in copied.values()} == {"public.items.read"}
    told = [_op(message) for message in found if _op(message) != "read"]
    assert told[:3] == ["insert", "schema", "update"]
    assert sorted(told[3:5]) == ["delete", "update"]  # the row left its key
    assert told[5:] == ["delete"]


def test_debezium_and_messages_that_reach_nobody(
    shop: PipelineUnderTest, rabbit_server: RabbitServer, threads: Threads
) -> None:
    configure(shop, rabbit_server, format="debezium", unroutable="count")
    metrics = catch_up(shop, threads)
    assert metrics.registry.total(UNROUTABLE) == 5
    assert metrics.registry.total(RESENT) == 0
    queue = BoundQueue(rabbit_server, shop.name)
    shop.execute("DELETE FROM items WHERE id = 1")
    assert catch_up(shop, threads).registry.total(UNROUTABLE) == 0
    # No tombstone behind the delete.
    (message,) = queue.messages()
    assert json.loads(message.body)["op"] == "d"


def _op(message: StoredMessage) -> str:
    return message.headers["penstock.op"]
