"""Producers, which executors keep between tasks: connecting takes longer than a small batch."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from penstock.destination.kafka.failures import failure, failure_of, unavailable
from penstock.destination.kafka.librdkafka import NativeProducer
from penstock.destination.kafka.message_slots import Outgoing
from penstock.destination.kafka.options import KafkaOptions
from penstock.destination.kafka.troubles import Troubles

_FULL_SECONDS = 0.05
_FLUSH_SECONDS = 1.0


class KeptProducer:
    """A producer, and what became of what it was given."""

    def __init__(self, settings: dict[str, Any], timeout: float) -> None:
        self._timeout = timeout
        self._failed: KafkaError | None = None
        self.troubles = Troubles()
        try:
            self.producer = NativeProducer(settings, self.troubles, self._note)
        except KafkaException as error:
            raise failure(error, "making a producer") from None

    def produce(self, messages: Outgoing) -> None:
        """Hand them over; waits while the buffer is full. Raises what an earlier one met."""
        done = self._handed_over(messages, 0)
        while done < len(messages):
            self.producer.poll(_FULL_SECONDS)
            self.check()
            done = self._handed_over(messages, done)
        self.producer.poll(0)
        self.check()

    def flush(self) -> None:
        """Return when everything has arrived."""
        deadline = time.monotonic() + self._timeout
        while self.producer.flush(_FLUSH_SECONDS):
            self.check()
            if time.monotonic() > deadline:
                raise unavailable(
                    f"destination kafka: messages did not arrive within {self._timeout:g} s",
                    self.troubles.last,
                )
        self.check()
        self.troubles.forget()

    def check(self) -> None:
        if self._failed is not None:
            raise failure_of(self._failed, "sending messages", self.troubles)

    def discard(self) -> None:
        """Send nothing more of what was handed over. The producer is of no use afterwards."""
        self.producer.close()

    def _handed_over(self, messages: Outgoing, first: int) -> int:
        try:
            return self.producer.produce(messages, first)
        except KafkaException as error:
            topics = " and ".join(messages.topics)
            raise failure(error, f"sending to topic {topics}") from None

    def _note(self, error: KafkaError) -> None:
        if self._failed is None:
            self._failed = error


_kept: dict[str, KeptProducer] = {}


def kept_producer(options: KafkaOptions) -> KeptProducer:
    """This process's producer for what needs no transactions."""
    name = options.model_dump_json()
    if name not in _kept:
        # Should one message fail for good, none that was sent after it may arrive.
        settings = {**options.producer, "enable.gapless.guarantee": True}
        _kept[name] = KeptProducer(settings, options.delivery_timeout)
    return _kept[name]


def forget_producer(options: KafkaOptions) -> None:
    """What it still holds is not to be sent; the next one is made anew."""
    kept = _kept.pop(options.model_dump_json(), None)
    if kept is not None:
        kept.discard()
