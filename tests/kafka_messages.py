"""Reading back what was sent to Kafka."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from penstock.destination.kafka.positions import bounds
from penstock.model.lsn import parse_lsn

_SECONDS = 60.0
_UNDECIDED_SECONDS = 5.0

Place = tuple[int, int, int]
"""Commit LSN, ordinal, and which message of the change."""


def read_topics(brokers: str, wanted: Callable[[str], bool]) -> list[Message]:
    """All committed messages of all topics that are wanted, partition by partition.

    The mark of a commit comes a moment after its answer: what was written is waited for, unless
    nobody decides it, as after a crash.
    """
    consumer, ends = _consumer(brokers, "read_committed"), _consumer(brokers, "read_uncommitted")
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
        written: dict[tuple[str | None, int | None], int] = {
            (place.topic, place.partition): bounds(ends, place)[1] for place in places
        }
        open_ones, undecided = set(found), set(found)
        while undecided:
            message = consumer.poll(_SECONDS if open_ones else _UNDECIDED_SECONDS)
            if message is None and not open_ones:
                break
            assert message is not None, f"no answer within {_SECONDS:g} s"
            place = (message.topic(), message.partition())
            error = message.error()
            if error is None:
                found[place].append(message)
                continue
            assert error.code() == KafkaError._PARTITION_EOF, error
            open_ones.discard(place)
            if (message.offset() or 0) >= written[place]:
                undecided.discard(place)
        return [message for messages in found.values() for message in messages]
    finally:
        consumer.close()
        ends.close()


def _consumer(brokers: str, isolation: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": brokers,
            "group.id": "tests",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 32_000_000,
        }
    )


def place(message: Message) -> Place:
    """Where the change of a message stands, and which of its messages it is."""
    text = dict(message.headers() or [])["penstock.position"]
    assert isinstance(text, bytes)
    lsn, ordinal, *part = text.decode().split("+")
    return parse_lsn(lsn), int(ordinal), int(part[0]) if part else 0


def check_order(messages: Iterable[Message]) -> None:
    """The messages of a key stand in order, once those that were sent again are left out."""
    seen: dict[tuple[object, object], dict[Place, None]] = defaultdict(dict)
    for message in messages:
        seen[(message.topic(), message.key())].setdefault(place(message))
    for (topic, key), places in seen.items():
        if key is not None:
            assert list(places) == sorted(places), f"{topic}: {key!r} is out of order"
