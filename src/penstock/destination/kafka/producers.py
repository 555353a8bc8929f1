"""Producers, which executors keep between tasks: connecting takes longer than a small batch."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from penstock.destination.kafka.failures import failure, failure_of, unavailable
from penstock.destination.kafka.options import KafkaOptions
from penstock.destination.kafka.routes import Outgoing
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
            self.producer = Producer({**settings, "error_cb": self.troubles})
        except KafkaException as error:
            raise failure(error, "making a producer") from None

    def produce(self, messages: Outgoing) -> None:
        """Hand them over; waits while the buffer is full. Raises what an earlier one met."""
        produce, report = self.producer.produce, self._report
        for topic, partition, key, value, headers in zip(
            messages.topic,
            messages.partition,
            messages.key,
            messages.value,
            messages.headers,
            strict=True,
        ):
            while True:
                try:
                    produce(topic, value, key, partition, report, headers=headers)
                except BufferError:
                    self.producer.poll(_FULL_SECONDS)
                    self.check()
                except KafkaException as error:
                    raise failure(error, f"sending to topic {topic}") from None
                else:
                    break
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
        self.producer.purge()
        # One that loses what is on its way cannot keep its promise of no gaps, and says so: it must
        # not hide why it is given up.
        with suppress(KafkaException):
            self.producer.poll(0)

    def _report(self, error: KafkaError | None, _message: Message) -> None:
        if error is not None and self._failed is None:
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
