"""How the suite makes the `kafka` destination, and reads back what it sent."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from confluent_kafka import Message

from penstock.destination.contract import Destination
from penstock.destination.kafka.destination import KafkaDestination
from penstock.destination.kafka.options import KafkaOptions
from tests.contract.adapters import PIPELINE
from tests.contract.queue_adapter import QueueAdapter
from tests.kafka_messages import check_order, read_topics


class KafkaAdapter(QueueAdapter):
    transactional: ClassVar[bool] = False
    brokers: str
    """Set by the fixture."""

    def connect(self) -> Destination:
        options = {
            "brokers": self.brokers,
            "topic": f"{self.name}.{{schema}}.{{table}}",
            "schema_topic": f"{self.name}-schema",
            "message_topic": f"{self.name}-messages",
            "positions_topic": f"{self.name}_positions",
            "transactional": self.transactional,
            "lanes": {"by": "key", "count": 3},
            "topics": {"partitions": 2, "config": {"max.message.bytes": 16_000_000}},
            "max_message_bytes": "16MB",
        }
        return KafkaDestination(KafkaOptions.model_validate(options), PIPELINE)

    def events(self) -> list[dict[str, Any]]:
        messages = read_topics(
            self.brokers, lambda topic: topic.startswith((f"{self.name}.", f"{self.name}-"))
        )
        check_order(messages)
        return [_line(message) for message in messages]


class TransactionalKafkaAdapter(KafkaAdapter):
    transactional = True


def _line(message: Message) -> dict[str, Any]:
    value = message.value()
    assert value is not None
    line: dict[str, Any] = json.loads(value, parse_int=str, parse_float=str)
    headers = dict(message.headers() or [])
    assert headers["penstock.op"] == line["op"].encode()
    if line["op"] in ("insert", "update", "delete"):
        key = message.key()
        assert (json.loads(key, parse_int=str) if key else None) == line["key"]
        assert headers["penstock.schema_version"] == line["schema_version"].encode()
    return line
