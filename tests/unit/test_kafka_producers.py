"""What the guarantees of kafka ask of its producers, without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.destination.kafka import producers, sender
from penstock.destination.kafka.options import KafkaOptions
from penstock.destination.kafka.routes import Routes

OPTIONS = KafkaOptions.model_validate({"brokers": "localhost:9092"})


def test_no_message_arrives_after_one_that_failed_for_good(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made: list[dict[str, Any]] = []
    monkeypatch.setattr(producers, "NativeProducer", lambda given, *_: made.append(given))
    monkeypatch.setattr(producers, "_kept", {})
    producers.kept_producer(OPTIONS)
    (settings,) = made
    assert settings["enable.gapless.guarantee"] is True
    assert settings["enable.idempotence"] is True


def test_a_lane_is_read_when_no_transaction_of_it_is_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether the last one of a sender that died counts is decided when its name is taken over."""
    steps: list[str] = []
    monkeypatch.setattr(sender, "TransactionalProducer", lambda *_: steps.append("taken over"))
    monkeypatch.setattr(sender, "read_lane", lambda *_: steps.append("read"))
    sender._Lane(Routes(OPTIONS, "shop", {}), 0)
    assert steps == ["taken over", "read"]
