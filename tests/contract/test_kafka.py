"""The contract suite on `kafka`, with and without transactions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Message

from penstock.destination.contract import Destination
from penstock.destination.kafka.destination import KafkaDestination
from penstock.destination.kafka.options import KafkaOptions
from penstock.testing import Adapter, DestinationContract, parse_line
from tests.contract.queue_adapter import QueueAdapter
from tests.kafka_messages import check_order, read_topics
from tests.kafka_server import KafkaServer


class KafkaAdapter(QueueAdapter):
    def __init__(self, brokers: str, *, transactional: bool) -> None:
        super().__init__()
        self.brokers = brokers
        self.transactional = transactional

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
        return KafkaDestination(KafkaOptions.model_validate(options), "shop")

    def events(self) -> list[dict[str, Any]]:
        messages = read_topics(
            self.brokers, lambda topic: topic.startswith((f"{self.name}.", f"{self.name}-"))
        )
        check_order(messages)
        return [_line(message) for message in messages]


def _line(message: Message) -> dict[str, Any]:
    value = message.value()
    assert value is not None
    line = parse_line(value)
    headers = dict(message.headers() or [])
    assert headers["penstock.op"] == line["op"].encode()
    if line["op"] in ("insert", "update", "delete"):
        key = message.key()
        assert (json.loads(key, parse_int=str) if key else None) == line["key"]
        assert headers["penstock.schema_version"] == line["schema_version"].encode()
    return line


class TestKafka(DestinationContract):
    @pytest.fixture(params=[pytest.param("plain", marks=pytest.mark.release), "transactional"])
    def adapter(
        self, request: pytest.FixtureRequest, kafka_server: KafkaServer
    ) -> Iterator[Adapter]:
        transactional = request.param == "transactional"
        adapter = KafkaAdapter(kafka_server.brokers, transactional=transactional)
        yield adapter
        adapter.close()
