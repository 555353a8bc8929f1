"""What becomes of messages when RabbitMQ refuses them, blocks, is cut off, or knows no queue."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from penstock.decode.changes import ChangeSet
from penstock.destination.contract import SentLanes
from penstock.destination.rabbitmq.destination import RabbitDestination
from penstock.destination.rabbitmq.links import BrokerLink
from penstock.destination.rabbitmq.options import RabbitOptions
from penstock.model.errors import DestinationError, DestinationUnavailable
from penstock.testing.change_builder import ChangeBuilder
from penstock.testing.contract.deliveries import ITEMS, definition
from tests.fix_pipeline import wait_until
from tests.rabbitmq_messages import BoundQueue, check_order
from tests.rabbitmq_server import USERS, RabbitServer

KEYS, ROUNDS = 30, 20


@pytest.fixture
def exchange() -> str:
    return uuid.uuid4().hex[:8]


@pytest.fixture
def make(rabbit_server: RabbitServer, exchange: str) -> Iterator[Callable[..., RabbitDestination]]:
    """A destination that sends to the test's own exchange."""
    made: list[RabbitDestination] = []

    def _make(**options: Any) -> RabbitDestination:
        given = {**rabbit_server.destination, "exchange": exchange, **options}
        destination = RabbitDestination(RabbitOptions.model_validate(given), "shop")
        destination.prepare([definition(ITEMS)])
        made.append(destination)
        return destination

    yield _make
    for destination in made:
        destination.close()


def rounds(builder: ChangeBuilder) -> ChangeSet:
    """Every key is changed again and again."""
    for number in range(ROUNDS):
        with builder.transaction():
            for key in range(KEYS):
                if number:
                    builder.update(ITEMS, str(key), f"round {number}")
                else:
                    builder.insert(ITEMS, str(key), "new")
    return builder.cut()


def send(destination: RabbitDestination, changes: ChangeSet) -> SentLanes:
    writer = destination.writer()
    return writer.send(writer.encode([changes]))


def expect_all(queue: BoundQueue) -> list[Any]:
    """Every change is there, those of each key in order; all messages, in the queue's order."""
    messages = queue.messages()
    check_order(messages)
    assert len({message.place for message in messages}) == KEYS * ROUNDS
    return messages


@contextmanager
def sending(destination: RabbitDestination, changes: ChangeSet) -> Iterator[Future[SentLanes]]:
    """In another thread, which is done when the block is left."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(send, destination, changes)


def test_order_is_kept_while_a_queue_refuses_messages(
    rabbit_server: RabbitServer, exchange: str, make: Callable[..., RabbitDestination]
) -> None:
    """A queue that is full takes nothing, then some: later messages while earlier ones failed."""
    queue = BoundQueue(
        rabbit_server, exchange, {"x-max-length": 20, "x-overflow": "reject-publish"}
    )
    with sending(make(), rounds(ChangeBuilder())) as sent:
        # Each look makes room.
        wait_until(lambda: bool(queue.messages()) and sent.done(), "all are sent")
        resent = sent.result().resent
    assert resent > KEYS
    messages = expect_all(queue)
    # Nothing was lost or cut off: nothing comes twice.
    assert len(messages) == KEYS * ROUNDS


def test_order_is_kept_over_connections_that_are_cut(
    rabbit_server: RabbitServer,
    exchange: str,
    make: Callable[..., RabbitDestination],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    queue = BoundQueue(rabbit_server, exchange)
    publish, count, cuts = BrokerLink.publish, itertools.count(1), []

    def cutting(link: BrokerLink, *message: Any) -> int:
        if not next(count) % 97:
            cuts.append(rabbit_server.proxy.cut())
        return publish(link, *message)

    monkeypatch.setattr(BrokerLink, "publish", cutting)
    sent = send(make(max_unconfirmed=10), rounds(ChangeBuilder()))
    assert sum(cuts) > 4
    assert sent.resent > 0
    expect_all(queue)


def test_a_server_that_blocks_its_clients(
    rabbit_server: RabbitServer, exchange: str, make: Callable[..., RabbitDestination]
) -> None:
    """As it does when memory is short."""
    queue = BoundQueue(rabbit_server, exchange)
    changes = rounds(ChangeBuilder())
    rabbit_server.control("set_vm_memory_high_watermark", "0")
    try:
        impatient = make(delivery_timeout="1s")
        with pytest.raises(DestinationUnavailable, match="takes no messages: low on memory") as no:
            send(impatient, changes)
        assert "rabbitmqctl status" in no.value.remedy
        with pytest.raises(DestinationUnavailable, match="takes no messages: low on memory"):
            impatient.check()
        patient = make(buffer_bytes="100kB")
        with sending(patient, changes) as sent:
            rabbit_server.control("set_vm_memory_high_watermark", "absolute", "1GB")
            sent.result()
    finally:
        rabbit_server.control("set_vm_memory_high_watermark", "absolute", "1GB")
    expect_all(queue)


def test_a_server_that_is_away_and_comes_back(
    rabbit_server: RabbitServer, exchange: str, make: Callable[..., RabbitDestination]
) -> None:
    queue = BoundQueue(rabbit_server, exchange)
    changes = rounds(ChangeBuilder())
    rabbit_server.proxy.refuse()
    try:
        with pytest.raises(DestinationUnavailable, match=r"for 0.5 s nothing got through"):
            send(make(delivery_timeout="500ms"), changes)
        is_back = threading.Timer(0.5, rabbit_server.proxy.accept)
        is_back.start()
        send(make(), changes)
        is_back.join()
    finally:
        rabbit_server.proxy.accept()
    expect_all(queue)


def test_a_connection_that_is_reset_while_it_is_made(
    rabbit_server: RabbitServer,
    exchange: str,
    make: Callable[..., RabbitDestination],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The socket was connected, and is no longer when pika looks at it: the next attempt counts."""
    queue = BoundQueue(rabbit_server, exchange)
    destination, changes = make(), rounds(ChangeBuilder())
    resets: list[socket.socket] = []

    def reset_once(peer: socket.socket) -> Any:
        if not resets:
            resets.append(peer)
            raise OSError(errno.ENOTCONN, "Transport endpoint is not connected")
        return super(socket.socket, peer).getpeername()

    monkeypatch.setattr(socket.socket, "getpeername", reset_once, raising=False)
    send(destination, changes)
    assert resets
    expect_all(queue)


def test_messages_that_no_queue_gets(
    rabbit_server: RabbitServer, exchange: str, make: Callable[..., RabbitDestination]
) -> None:
    changes = rounds(ChangeBuilder())
    make(declare=True).open()
    with pytest.raises(DestinationError, match=r"no queue gets .* 'public\.items\.\w+'") as error:
        send(make(), changes)
    assert not isinstance(error.value, DestinationUnavailable)
    assert "destination.unroutable: count" in error.value.remedy
    assert send(make(unroutable="count"), changes).unroutable == KEYS * ROUNDS
    queue = BoundQueue(rabbit_server, exchange)
    assert send(make(), changes).unroutable == 0
    expect_all(queue)


def test_ids_by_which_consumers_know_what_came_again(
    rabbit_server: RabbitServer, exchange: str, make: Callable[..., RabbitDestination]
) -> None:
    queue = BoundQueue(rabbit_server, exchange)
    destination = make(persistent=False)
    changes = rounds(ChangeBuilder())
    send(destination, changes)
    first = {message.properties.message_id: message.body for message in queue.messages()}
    assert len(first) == KEYS * ROUNDS
    send(destination, changes)
    messages = queue.messages()
    assert {message.properties.message_id: message.body for message in messages} == first
    assert {message.properties.delivery_mode for message in messages} == {1}
    assert {message.routing_key for message in messages} == {
        "public.items.insert",
        "public.items.update",
    }


def test_what_is_too_large_is_put_aside(
    rabbit_server: RabbitServer,
    exchange: str,
    make: Callable[..., RabbitDestination],
    tmp_path: Path,
) -> None:
    queue = BoundQueue(rabbit_server, exchange)
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "x" * 5000)
    changes = builder.cut()
    with pytest.raises(DestinationError, match=r"table public\.items at .* bytes") as error:
        send(make(max_message_bytes=4000), changes)
    assert "max_message_size" in error.value.remedy
    send(make(max_message_bytes=4000, oversize={"claim_check": str(tmp_path)}), changes)
    (message,) = queue.messages()
    claim = json.loads(message.body)["claim_check"]
    content = Path(claim["path"]).read_bytes()
    assert hashlib.sha256(content).hexdigest() == claim["sha256"]
    assert json.loads(content)["new"]["name"] == "x" * 5000


def test_check(
    rabbit_server: RabbitServer, exchange: str, make: Callable[..., RabbitDestination]
) -> None:
    with pytest.raises(DestinationError, match=f"exchange {exchange} does not exist") as error:
        make().check()
    assert "destination.declare: true" in error.value.remedy
    with pytest.raises(DestinationError, match="does not exist"):
        make().open()
    (said,) = make(declare=True).check()
    assert "declared at the start" in said
    make(declare=True).open()
    queue = BoundQueue(rabbit_server, exchange)
    assert make().check() == make(declare=True).check() == []
    assert queue.messages() == []  # it sends nothing
    with pytest.raises(DestinationError, match="inequivalent arg 'type'"):
        make(declare=True, exchange_type="direct").open()
    with pytest.raises(DestinationError, match=r"invalid exchange type"):
        make(declare=True, exchange="another", exchange_type="round").open()


@pytest.mark.parametrize(
    ("options", "said", "remedy"),
    [
        ({"password": "wrong"}, "ACCESS_REFUSED", "the user or the password is wrong"),
        ({"user": "stranger"}, "access to vhost 'shop' refused", "rabbitmqctl set_permissions"),
        ({"vhost": "none"}, "vhost none not found", "rabbitmqctl add_vhost"),
        ({"user": "reader"}, "write access|access to exchange", "docs/destinations/rabbitmq.md"),
        ({"port": 1}, "connecting failed", "see whether the server runs"),
    ],
    ids=["password", "stranger", "vhost", "rights", "nobody"],
)
def test_what_check_says(
    rabbit_server: RabbitServer,
    exchange: str,
    make: Callable[..., RabbitDestination],
    options: dict[str, Any],
    said: str,
    remedy: str,
) -> None:
    BoundQueue(rabbit_server, exchange)
    user = options.get("user", "penstock")
    url = rabbit_server.url(user, port=options.get("port", 0))
    given = {
        "url": url.replace("/shop", f"/{options.get('vhost', 'shop')}"),
        "password": options.get("password", USERS[user]),
    }
    with pytest.raises(DestinationError, match=said) as error:
        make(**given).check()
    assert remedy in error.value.remedy
    assert USERS[user] not in error.value.message
    assert isinstance(error.value, DestinationUnavailable) == ("port" in options)


def test_tls(
    rabbit_server: RabbitServer, exchange: str, make: Callable[..., RabbitDestination]
) -> None:
    queue = BoundQueue(rabbit_server, exchange)
    secured = {"url": rabbit_server.url(port=rabbit_server.tls_port, scheme="amqps")}
    with pytest.raises(DestinationError, match="certificate verify failed") as error:
        make(**secured).check()
    assert "destination.tls" in error.value.remedy
    trusted = {**secured, "tls": {"ca": str(rabbit_server.certificate)}}
    # The first of the servers is not there.
    destination = make(**{**trusted, "url": ["amqps://penstock@127.0.0.1:1/shop", secured["url"]]})
    assert destination.check() == []
    send(destination, rounds(ChangeBuilder()))
    expect_all(queue)
    with pytest.raises(DestinationError, match=r"No such file .*nowhere"):
        make(**secured, tls={"ca": "/nowhere.pem"}).check()
