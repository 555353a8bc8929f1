"""Transactions: the messages of a lane and its position arrive together, or not at all."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from penstock.destination.kafka.failures import failure
from penstock.destination.kafka.message_slots import Outgoing
from penstock.destination.kafka.options import KafkaOptions
from penstock.destination.kafka.producers import KeptProducer
from penstock.model.errors import Fenced, PenstockError

_FENCED = (
    KafkaError._FENCED,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_PRODUCER_EPOCH,
)
# Longer than any transaction of ours takes, and no longer than brokers allow by default.
_LONGEST_MILLISECONDS = 15 * 60 * 1000


class TransactionalProducer:
    """Whoever makes one under the same name fences this one."""

    def __init__(self, options: KafkaOptions, name: str) -> None:
        self._timeout = options.delivery_timeout
        self._fenced: Fenced | None = None
        settings: dict[str, Any] = {
            **options.producer,
            "transactional.id": name,
            "transaction.timeout.ms": _LONGEST_MILLISECONDS,
        }
        self._kept = KeptProducer(settings, options.delivery_timeout)
        try:
            self._patiently(self._kept.producer.init_transactions, "beginning transactions")
        except PenstockError:
            self._kept.discard()
            raise

    def send(self, *messages: Outgoing) -> None:
        """In one transaction. Raises Fenced if another has taken over; after any error this
        producer is of no use, and whether the messages are there only a new one can tell.
        """
        if self._fenced is not None:
            raise self._fenced
        producer = self._kept.producer
        try:
            producer.begin_transaction()
            for some in messages:
                self._kept.produce(some)
        except KafkaException as error:
            raise self._reason(error, "sending messages") from None
        self._patiently(producer.commit_transaction, "committing a transaction")

    def discard(self) -> None:
        """Let go; what was not committed is not to be seen."""
        self._kept.discard()

    def _patiently(self, step: Callable[[float], None], doing: str) -> None:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                step(self._timeout)
            except KafkaException as error:
                again = error.args[0].retriable() and not error.args[0].txn_requires_abort()
                if not again or time.monotonic() > deadline:
                    raise self._reason(error, doing) from None
            else:
                self._kept.troubles.forget()
                return

    def _reason(self, error: KafkaException, doing: str) -> PenstockError:
        if error.args[0].code() not in _FENCED:
            self._kept.producer.poll(0)  # so that it tells of its troubles
            return failure(error, doing, self._kept.troubles)
        self._fenced = Fenced(
            "destination kafka: another run of this pipeline has taken over; this one may not "
            "send any more",
            remedy="see to it that only one `penstock run` of the pipeline is under way",
        )
        return self._fenced
