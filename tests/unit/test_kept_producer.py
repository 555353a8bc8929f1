"""Producers that executors keep: what giving one up says, and does not say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from penstock.destination.kafka.producers import KeptProducer


def test_giving_up_what_is_on_its_way_is_no_error() -> None:
    """The caller has one already: the reason why it gives up."""
    done: list[str] = []

    def poll(_seconds: float) -> Any:
        done.append("poll")
        raise KafkaException(KafkaError(KafkaError._GAPLESS_GUARANTEE))

    kept = KeptProducer({"bootstrap.servers": "127.0.0.1:1"}, timeout=1.0)
    kept.producer = SimpleNamespace(purge=lambda: done.append("purge"), poll=poll)  # type: ignore[assignment]
    kept.discard()
    assert done == ["purge", "poll"]
