"""Topics that change while they are read, with a real broker: more partitions, compaction."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from confluent_kafka.cimpl import NewPartitions, NewTopic

from penstock.config.kafka_source import KafkaSourceConfig
from penstock.source.kafka.client import TopicReader
from penstock.source.kafka.offsets import Partition
from tests.crash.penstock_run import WITHOUT_SPARK, PenstockRun
from tests.fix_pipeline import PipelineUnderTest, wait_until
from tests.kafka_messages import read_topics
from tests.kafka_server import KafkaServer
from tests.kafka_source_pipelines import TABLES, TopicsInBetween
from tests.threads_engine import Threads


def test_partitions_that_are_added_while_it_runs_are_read_behind_the_others(
    pipeline: PipelineUnderTest, kafka_server: KafkaServer, target_url: str, threads: Threads
) -> None:
    pipeline.execute(*TABLES)
    topics = TopicsInBetween(pipeline, kafka_server, target_url, partitions=1)
    topics.write(threads)
    run = PenstockRun(topics.file, environment=WITHOUT_SPARK)
    try:
        wait_until(lambda: "old 7" in names(target_url), "the rows have come")
        topics.execute("UPDATE items SET name = 'before'")
        topics.write(threads)
        grow(topics, "items", 4)
        topics.execute(
            "UPDATE items SET name = 'after'",
            "DELETE FROM items WHERE id % 10 = 0",
            "INSERT INTO items (id, name) SELECT n, 'new' FROM generate_series(500, 540) n",
        )
        topics.write(threads)
        wait_until(lambda: names(target_url) == {"after", "new"}, "the changes have come")
        assert run.exit_code is None
    finally:
        run.end()
    run.expect_no_bug()
    topics.read(threads)
    assert topics.expect_same() == 271
    found = read_topics(kafka_server.brokers, lambda name: name == topics.topic("items"))
    assert len({message.partition() for message in found}) == 4


@pytest.mark.release
def test_a_compacted_topic_brings_the_last_of_each_row(
    pipeline: PipelineUnderTest, target_url: str, threads: Threads
) -> None:
    pipeline.execute(*TABLES)
    with KafkaServer({"log.cleaner.backoff.ms": "100"}) as kafka:
        topics = TopicsInBetween(pipeline, kafka, target_url, partitions=1)
        topics.write(threads)
        compact(topics, "items")
        for round_ in range(3):
            topics.execute(
                f"UPDATE items SET name = '{round_}', big = '{round_}' || big",  # noqa: S608
                f"DELETE FROM items WHERE id = {10 + round_}",  # noqa: S608
            )
            topics.write(threads)
        # 803 were sent.
        wait_until(lambda: count(topics) < 500, "the topic is compacted")
        topics.configure(incomplete="accept")
        topics.read(threads)
        assert topics.expect_same() == 247


@pytest.mark.release
def test_a_partition_that_has_lost_what_was_read_is_refused() -> None:
    place = Partition("lost", 0)
    with KafkaServer() as kafka:
        admin = AdminClient({"bootstrap.servers": kafka.brokers})
        for future in admin.create_topics([NewTopic(place.topic, 1, 1)]).values():
            future.result()
        produce(kafka, place.topic, 5)
        config = KafkaSourceConfig.model_validate(
            {
                "type": "kafka",
                "url": "postgresql://localhost/nowhere",
                "brokers": kafka.brokers,
                "topics": [place.topic],
                "format": "debezium",
            }
        )
        (before, _) = read_from(config, {place: 0}, {}, 5)
        epoch = before[-1].leader_epoch()
        # The next leader has another epoch.
        kafka.kill()
        kafka.start()
        produce(kafka, place.topic, 15)
        # As if the first one had written ten, and five were lost.
        found, errors = read_from(config, {place: 10}, {place: epoch}, 1)
        assert (found, errors) == ([], [KafkaError._AUTO_OFFSET_RESET])
        found, errors = read_from(config, {place: 5}, {place: epoch}, 15)
        assert [message.offset() for message in found] == list(range(5, 20))
        assert set(errors) <= {KafkaError._PARTITION_EOF}


def produce(kafka: KafkaServer, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": kafka.brokers, "log_level": "2"})
    for number in range(count):
        producer.produce(topic, b"%d" % number)
    assert producer.flush(60) == 0


def read_from(
    config: KafkaSourceConfig,
    places: dict[Partition, int],
    epochs: dict[Partition, int],
    count: int,
) -> tuple[list[Any], list[int]]:
    """So many messages and errors, or the partition's end."""
    reader = TopicReader(config, "tests")
    found: list[Any] = []
    errors: list[int] = []
    try:
        reader.add(places, epochs)
        while len(found) + len(errors) < count:
            for message in reader.take(count, 0.2):
                error = message.error()
                if error is None:
                    found.append(message)
                elif not error.retriable():
                    errors.append(error.code())
    finally:
        reader.close()
    return found, errors


def names(url: str) -> set[str]:
    with psycopg.connect(url, autocommit=True) as conn:
        if conn.execute("SELECT to_regclass('items')").fetchone() == (None,):
            return set()
        return {str(name) for (name,) in conn.execute("SELECT DISTINCT name FROM items")}


def grow(topics: TopicsInBetween, table: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": topics.kafka.brokers})
    wanted = [NewPartitions(topics.topic(table), partitions)]
    for future in admin.create_partitions(wanted).values():
        future.result()


def compact(topics: TopicsInBetween, table: str) -> None:
    admin = AdminClient({"bootstrap.servers": topics.kafka.brokers})
    settings = {
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.01",
        "segment.ms": "100",
    }
    wanted = ConfigResource(
        ConfigResource.Type.TOPIC,
        topics.topic(table),
        incremental_configs=[
            ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ],
    )
    for future in admin.incremental_alter_configs([wanted]).values():
        future.result()


def count(topics: TopicsInBetween) -> int:
    found = read_topics(topics.kafka.brokers, lambda name: name == topics.topic("items"))
    return len(found)
