"""The executor's side: encodes changes, and sends them lane by lane."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.destination.contract import Receipt
from penstock.destination.families.queue.senders import (
    EventChunkWriter,
    EventSender,
    EventWriter,
    count_receipt,
)
from penstock.destination.rabbitmq.delivery import RabbitDelivery
from penstock.destination.rabbitmq.messages import Message, MessageRoutes
from penstock.failpoints import failpoint


@dataclass(frozen=True)
class RabbitWriter(EventWriter):
    """Encodes changes, and sends them lane by lane."""

    routes: MessageRoutes

    def sender(self) -> RabbitSender:
        return RabbitSender(self.routes)


class RabbitSender(EventSender):
    """At least once: what is sent again after a crash comes again, in the same order."""

    def __init__(self, routes: MessageRoutes, *, ordered: bool = True) -> None:
        self._routes = routes
        self._ordered = ordered
        self._delivery = RabbitDelivery(routes)
        self._count = 0

    def send_events(self, events: pa.RecordBatch) -> None:
        messages = self._routes.outgoing(events)
        self._delivery.hand_over(messages if self._ordered else self._apart(messages))
        self._count += len(events)
        self._tell()
        failpoint("rabbitmq.handed_over")

    def finish(self) -> Receipt:
        self._delivery.flush()
        self._tell()
        return count_receipt(self._count)

    def give_up(self) -> None:
        self._delivery.give_up()

    def _apart(self, messages: Iterator[Message]) -> Iterator[Message]:
        """Each free to go before the others."""
        for number, message in enumerate(messages, self._count):
            yield message._replace(group=number)

    def _tell(self) -> None:
        self.resent, self.unroutable = self._delivery.resent, self._delivery.unroutable


@dataclass(frozen=True)
class RabbitChunkWriter(EventChunkWriter):
    """Rows of one snapshot have no order among each other."""

    routes: MessageRoutes

    def sender(self) -> RabbitSender:
        return RabbitSender(self.routes, ordered=False)
