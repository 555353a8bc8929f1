"""A Kafka broker to deliver to, and whether everything arrived."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, TopicPartition

from bench.server import BenchError
from tests.kafka_server import KafkaServer

_SECONDS = 30.0


class KafkaTopics(KafkaServer):
    """Inside ``with`` the broker runs."""

    @property
    def destination(self) -> dict[str, Any]:
        """The pipeline file's part: Debezium's JSON, other settings by default."""
        return {
            "type": "kafka",
            "brokers": self.brokers,
            "format": "debezium",
            "topics": {"partitions": 4},
        }

    def require_all(self, pipeline: str, changes: int) -> None:
        """A rate counts only if everything arrived; deletes make two messages each."""
        consumer = Consumer({"bootstrap.servers": self.brokers, "group.id": "bench"})
        try:
            found = 0
            for name, topic in consumer.list_topics(timeout=_SECONDS).topics.items():
                if name.startswith(f"{pipeline}.public."):
                    for partition in topic.partitions:
                        place = TopicPartition(name, partition)
                        low, high = consumer.get_watermark_offsets(place, timeout=_SECONDS)
                        found += high - low
        finally:
            consumer.close()
        if found < changes:
            raise BenchError(
                f"kafka did not deliver what the source holds: {found:,} messages of {changes:,} "
                "changes.",
                remedy="It is a bug of the system or of the benchmark: the figures mean nothing.",
            )
