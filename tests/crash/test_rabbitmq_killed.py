"""A RabbitMQ that crashes again and again while messages are on their way."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from penstock.destination.rabbitmq.destination import RabbitDestination
from penstock.destination.rabbitmq.links import BrokerLink
from penstock.destination.rabbitmq.options import RabbitOptions
from penstock.testing.change_builder import ChangeBuilder
from penstock.testing.contract.deliveries import ITEMS, definition
from tests.rabbitmq_messages import BoundQueue, check_order
from tests.rabbitmq_server import RabbitServer

KEYS, ROUNDS, KILLS = 200, 25, 3
# Large values are stored apart from small ones: a crash can keep a later message of a queue alone.
SIZES = itertools.cycle((10, 6000))


@pytest.mark.slow
@pytest.mark.release
def test_nothing_is_lost_and_order_kept_when_the_server_is_killed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    builder = ChangeBuilder()
    for number in range(ROUNDS):
        with builder.transaction():
            for key in range(KEYS):
                row = (str(key), f"{number} {'x' * next(SIZES)}")
                builder.update(ITEMS, *row) if number else builder.insert(ITEMS, *row)
    changes = builder.cut()
    total = KEYS * ROUNDS
    publish, count = BrokerLink.publish, itertools.count(1)
    with RabbitServer() as server, ThreadPoolExecutor(1) as starter:

        def killing(link: BrokerLink, *message: Any) -> int:
            """Some are under way whenever it dies; it comes back while they are sent again."""
            at = next(count)
            if not at % (total // (KILLS + 1)) and at // (total // (KILLS + 1)) <= KILLS:
                server.kill()
                starter.submit(server.start)
            return publish(link, *message)

        monkeypatch.setattr(BrokerLink, "publish", killing)
        queue = BoundQueue(server, "shop")
        given = {**server.destination, "max_unconfirmed": 150, "delivery_timeout": "300s"}
        with closing(RabbitDestination(RabbitOptions.model_validate(given), "shop")) as destination:
            destination.prepare([definition(ITEMS)])
            writer = destination.writer()
            sent = writer.send(writer.encode([changes]))
        starter.shutdown()
        assert sent.resent > 0
        messages = queue.messages()
        check_order(messages)
        assert len({message.place for message in messages}) == total
