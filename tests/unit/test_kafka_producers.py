"""What the guarantees of kafka ask of its producers, without a broker."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.destination.families.queue.options import LaneOptions
from penstock.destination.kafka import destination, producers, sender
from penstock.destination.kafka.message_slots import Outgoing
from penstock.destination.kafka.options import KafkaOptions
from penstock.destination.kafka.positions import DriverRecord, Sent, lanes_text
from penstock.destination.kafka.routes import Routes
from penstock.model.lsn import Frontier

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


def test_who_forgets_positions_takes_every_lane_over_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A worker that has kept a lane may know a position of another source: it would send only
    what stands behind that.
    """
    steps: list[str] = []

    class PlayedProducer:
        def __init__(self, _options: KafkaOptions, name: str) -> None:
            self._name = name
            steps.append(f"{name} taken over")

        def send(self, *messages: Outgoing) -> None:
            steps.append(f"{len(messages)} positions written")

        def discard(self) -> None:
            pass

    monkeypatch.setattr(destination, "TransactionalProducer", PlayedProducer)
    options = OPTIONS.model_copy(update={"transactional": True, "positions_topic": "at"})
    kafka = destination.KafkaDestination(options, "shop")
    monkeypatch.setattr(kafka._topics, "partitions", lambda: {"at": 3})
    kafka.forget()
    taken = [f"at.{each} taken over" for each in (0, 1, "driver")]
    assert sorted(steps[:-1]) == taken
    assert steps[-1] == "3 positions written"


LANES_OF_FOUR = lanes_text(LaneOptions(by="key", count=4))


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (None, [LANES_OF_FOUR]),
        (DriverRecord(Frontier(80, 88), None, "key/8"), [LANES_OF_FOUR]),
        (DriverRecord(Frontier(80, 88), None, LANES_OF_FOUR), []),
    ],
)
def test_lanes_are_told_of_before_anything_is_sent_in_them(
    monkeypatch: pytest.MonkeyPatch, found: DriverRecord | None, told: list[str]
) -> None:
    """Who dies amid the first batch leaves no other word of them: with the lanes of before, some
    changes would be sent twice, and nobody would notice.
    """
    written: list[DriverRecord] = []

    class PlayedProducer:
        def __init__(self, *_: object) -> None:
            pass

        def send(self, *messages: Outgoing) -> None:
            written.extend(DriverRecord.from_json(each.value[0].as_py()) for each in messages)

        def discard(self) -> None:
            pass

    monkeypatch.setattr(destination, "TransactionalProducer", PlayedProducer)
    monkeypatch.setattr(destination, "read_driver", lambda *_: found)
    monkeypatch.setattr(destination, "read_lanes", lambda *_: [("key/8", Sent(80, 0, 0))])
    options = OPTIONS.model_copy(update={"transactional": True, "positions_topic": "at"})
    kafka = destination.KafkaDestination(options, "shop")
    monkeypatch.setattr(kafka._topics, "make", lambda _: {})
    monkeypatch.setattr(kafka._topics, "make_positions", lambda *_: None)
    monkeypatch.setattr(kafka._topics, "partitions", lambda: {"at": 9})
    kafka.open()
    assert [each.lanes for each in written] == told
    assert all(each.frontier == (found and found.frontier) for each in written)
