"""How the suite makes the `kafka` destination, and reads back what it sent."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any, ClassVar

import pytest
from confluent_kafka import Message

from penstock.destination.contract import Destination
from penstock.destination.kafka import KafkaDestination, KafkaOptions
from penstock.destination.memory import MemoryChange
from tests.contract.adapters import PIPELINE, Adapter, from_line, in_commit_order
from tests.kafka_messages import check_order, read_topics
from tests.queue_events import without_departures


class KafkaAdapter(Adapter):
    chunk_stands_once = False
    chunk_waits_for_commit = False
    chunk_is_sent = True
    keeps_all_order = False
    transactional: ClassVar[bool] = False
    brokers: str
    """Set by the fixture."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, database: str) -> None:
        super().__init__(folder, monkeypatch, database)
        self._prefix = uuid.uuid4().hex[:8]
        self._made: list[Destination] = []

    def make(self) -> Destination:
        options = {
            "brokers": self.brokers,
            "topic": f"{self._prefix}.{{schema}}.{{table}}",
            "schema_topic": f"{self._prefix}-schema",
            "message_topic": f"{self._prefix}-messages",
            "positions_topic": f"{self._prefix}_positions",
            "transactional": self.transactional,
            "lanes": {"by": "key", "count": 3},
            "topics": {"partitions": 2, "config": {"max.message.bytes": 16_000_000}},
            "max_message_bytes": "16MB",
        }
        self._made.append(KafkaDestination(KafkaOptions.model_validate(options), PIPELINE))
        return self._made[-1]

    def close(self) -> None:
        for destination in self._made:
            destination.close()

    def delivered(self) -> list[MemoryChange]:
        return in_commit_order(change for change in self._changes() if change.op != "read")

    def copied(self) -> list[MemoryChange]:
        return [change for change in self._changes() if change.op == "read"]

    def _changes(self) -> list[MemoryChange]:
        messages = read_topics(
            self.brokers, lambda topic: topic.startswith((f"{self._prefix}.", f"{self._prefix}-"))
        )
        check_order(messages)
        return [from_line(line) for line in without_departures(map(_line, messages))]


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
