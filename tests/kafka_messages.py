"""Reading back what was sent to Kafka."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

_SECONDS = 30.0


def read_topics(brokers: str, wanted: Callable[[str], bool]) -> list[Message]:
    """All committed messages of all topics that are wanted, partition by partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "tests",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 32_000_000,
        }
    )
    try:
        topics = consumer.list_topics(timeout=_SECONDS).topics
        places = [
            TopicPartition(name, partition, 0)
            for name, topic in topics.items()
            if wanted(name)
            for partition in topic.partitions
        ]
        consumer.assign(places)
        found: dict[tuple[str | None, int | None], list[Message]] = {
            (place.topic, place.partition): [] for place in places
        }
        open_ones = set(found)
        while open_ones:
            message = consumer.poll(_SECONDS)
            assert message is not None, f"no answer within {_SECONDS:g} s"
            place = (message.topic(), message.partition())
            error = message.error()
            if error is None:
                found[place].append(message)
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                open_ones.discard(place)
        return [message for messages in found.values() for message in messages]
    finally:
        consumer.close()
