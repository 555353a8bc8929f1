"""Which partitions are read, and when new ones begin."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from penstock.config.kafka_source import KafkaSourceConfig
from penstock.source.kafka.client import Topic
from penstock.source.kafka.offsets import Offsets, Partition
from penstock.source.kafka.topic_set import TopicSet

OLD, NEW = Partition("shop.public.old", 0), Partition("shop.public.new", 0)


class FakeBrokers:
    """Topics of one partition, and where they end."""

    def __init__(self, **ends: int) -> None:
        self.ends = {f"shop.public.{name}": end for name, end in ends.items()}

    def topics(self) -> dict[str, Topic]:
        return {name: Topic(f"id of {name}", 1) for name in self.ends}

    def bounds(self, places: Collection[Partition], *, first: bool = False) -> dict[Partition, int]:
        return {place: 0 if first else self.ends[place.topic] for place in places}


def topic_set(brokers: FakeBrokers, offsets: Offsets) -> TopicSet:
    config = KafkaSourceConfig.model_validate(
        {
            "type": "kafka",
            "url": "postgresql://localhost/nowhere",
            "brokers": "localhost:9092",
            "topics": [r"^shop\..*"],
            "schema_topic": "schema",
        }
    )
    return TopicSet(config, brokers, offsets)  # type: ignore[arg-type]


def test_new_partitions_wait_for_the_others_but_not_for_those_that_are_deleted(
    capsys: pytest.CaptureFixture[str],
) -> None:
    brokers, offsets = FakeBrokers(old=10), Offsets()
    topics = topic_set(brokers, offsets)
    assert topics.look(is_first=True) == {OLD: 0}
    brokers.ends["shop.public.new"] = 3
    assert topics.look(is_first=False) == {OLD: 0}
    offsets.partitions[OLD].next = 4
    assert NEW not in topics.look(is_first=False)
    del brokers.ends["shop.public.old"]
    assert topics.look(is_first=False) == {NEW: 0}
    assert "6 messages of it were not read" in capsys.readouterr().err
