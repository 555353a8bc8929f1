"""The contract suite on `rabbitmq`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.destination.contract import Destination
from penstock.destination.rabbitmq.destination import RabbitDestination
from penstock.destination.rabbitmq.options import RabbitOptions
from penstock.testing import Adapter, DestinationContract, parse_line
from tests.contract.queue_adapter import QueueAdapter
from tests.rabbitmq_messages import BoundQueue, StoredMessage, check_order
from tests.rabbitmq_server import RabbitServer


class RabbitAdapter(QueueAdapter):
    def __init__(self, server: RabbitServer) -> None:
        super().__init__()
        self.server = server
        self.queue = BoundQueue(server, self.name)

    def connect(self) -> Destination:
        options = {
            **self.server.destination,
            "exchange": self.name,
            "lanes": {"by": "key", "count": 3},
            "max_unconfirmed": 50,
        }
        return RabbitDestination(RabbitOptions.model_validate(options), "shop")

    def events(self) -> list[dict[str, Any]]:
        messages = self.queue.messages()
        check_order(messages)
        return [_line(message) for message in messages]


def _line(message: StoredMessage) -> dict[str, Any]:
    line = parse_line(message.body)
    headers = message.headers
    assert headers["penstock.op"] == message.properties.type == line["op"]
    assert message.properties.delivery_mode == 2
    assert message.properties.app_id == "shop"
    if line["op"] in ("insert", "update", "delete"):
        key = headers.get("penstock.key")
        assert (json.loads(key, parse_int=str) if key else None) == line["key"]
        assert headers["penstock.schema_version"] == line["schema_version"]
        assert message.properties.message_id == headers["penstock.position"]
        assert message.routing_key.endswith(f".{line['op']}")
    return line


class TestRabbitMq(DestinationContract):
    @pytest.fixture
    def adapter(self, rabbit_server: RabbitServer) -> Iterator[Adapter]:
        adapter = RabbitAdapter(rabbit_server)
        yield adapter
        adapter.close()
