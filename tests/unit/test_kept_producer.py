"""Producers that executors keep: what giving one up says, and does not say."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException

from penstock.destination.kafka.message_slots import Outgoing
from penstock.destination.kafka.producers import KeptProducer
from penstock.model.errors import DestinationUnavailable


def test_giving_up_what_is_on_its_way_is_no_error() -> None:
    """The caller has one already: the reason why it gives up."""
    settings = {
        "bootstrap.servers": "127.0.0.1:1",
        "enable.idempotence": True,
        "enable.gapless.guarantee": True,
        "log_level": 0,
    }
    kept = KeptProducer(settings, timeout=1.0)
    kept.produce(Outgoing.single("items", 0, b"key", b"value"))
    kept.discard()
    kept.discard()
    with pytest.raises(KafkaException):
        kept.producer.poll(0)


def test_what_did_not_arrive_is_raised_by_the_flush() -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": 1, "log_level": 0}
    kept = KeptProducer(settings, timeout=60.0)
    kept.produce(Outgoing.single("items", 0, b"key", b"value"))
    with pytest.raises(DestinationUnavailable, match="sending messages failed"):
        kept.flush()
    kept.discard()
