"""Queues of a test's own, and reading back what was sent to them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from typing import Any, NamedTuple

from penstock.model.lsn import parse_lsn
from tests.rabbitmq_server import RabbitServer

Place = tuple[int, int, int]
"""Commit LSN, ordinal, and which message of the change."""


class StoredMessage(NamedTuple):
    routing_key: str
    properties: Any
    body: bytes

    @property
    def event(self) -> dict[str, Any]:
        """Numbers are texts, as they are written."""
        found: dict[str, Any] = json.loads(self.body, parse_int=str, parse_float=str)
        return found

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.properties.headers)

    @property
    def place(self) -> Place:
        lsn, ordinal, *part = self.headers["penstock.position"].split("+")
        return parse_lsn(lsn), int(ordinal), int(part[0]) if part else 0


class BoundQueue:
    """Gets all that an exchange is given. What was read stays known here."""

    def __init__(
        self, server: RabbitServer, exchange: str, arguments: dict[str, Any] | None = None
    ) -> None:
        self._server = server
        self.name = f"{exchange}-all"
        self._read: list[StoredMessage] = []
        with closing(server.connect()) as connection:
            channel = connection.channel()
            channel.exchange_declare(exchange, "topic", durable=True)
            channel.queue_declare(self.name, durable=True, arguments=arguments)
            channel.queue_bind(self.name, exchange, "#")

    def messages(self) -> list[StoredMessage]:
        """All so far, in the queue's order."""
        with closing(self._server.connect()) as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=1000)
            while count := channel.queue_declare(self.name, passive=True).method.message_count:
                for method, properties, body in channel.consume(self.name):
                    self._read.append(StoredMessage(method.routing_key, properties, body))
                    count -= 1
                    if count % 500 == 0:
                        channel.basic_ack(method.delivery_tag, multiple=True)
                    if not count:
                        break
                # What came meanwhile goes back, to where it was.
                channel.cancel()
        return list(self._read)


def check_order(messages: Iterable[StoredMessage]) -> None:
    """The messages of a key stand in order, once those that were sent again are left out."""
    seen: dict[tuple[str, str | None], dict[Place, None]] = defaultdict(dict)
    for message in messages:
        if message.headers["penstock.op"] in ("insert", "update", "delete"):
            table = message.routing_key.rpartition(".")[0]
            seen[table, message.headers.get("penstock.key")].setdefault(message.place)
    for name, places in seen.items():
        assert list(places) == sorted(places), f"{name} is out of order"
