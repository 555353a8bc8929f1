"""Connections, which executors keep between tasks: making one takes longer than a small batch."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pika
from pika.adapters.select_connection import IOLoop, SelectConnection
from pika.exceptions import StreamLostError

from penstock.destination.rabbitmq.failures import FAILURES, failure
from penstock.destination.rabbitmq.options import BrokerAddress, RabbitOptions
from penstock.model.errors import DestinationError

# It tells of every lost connection with a traceback; whoever is told of it by us knows enough.
logging.getLogger("pika").setLevel(logging.CRITICAL)

_HEARTBEAT_SECONDS = 60
# Nothing answers heartbeats between two tasks: the server ends what was silent for longer.
_IDLE_SECONDS = 45.0
_CONNECT_SECONDS = 10.0
_CLOSE_SECONDS = 2.0

Answered = Callable[[int, bool, bool], None]
"""Told of a delivery tag, whether those before it are meant as well, and whether it was taken."""
Returned = Callable[[str], None]
"""Told of the routing key of a message that no queue gets."""


class LinkLost(Exception):
    """The connection, or its channel, is gone. ``args`` has why."""


class _Connection(SelectConnection):  # type: ignore[misc]
    """Gives the socket many messages at a time: pika makes three frames of each, and sends every
    frame by itself.
    """

    def __init__(self, *given: Any, **more: Any) -> None:
        self._gathered: list[bytes] | None = None
        self._is_given_up = False
        super().__init__(*given, **more)

    def gather(self) -> None:
        """From now on what is to be sent waits for ``send_gathered``."""
        self._gathered = []

    def send_gathered(self) -> None:
        gathered = self._gathered
        if gathered:
            self._gathered = []
            super()._adapter_emit_data(b"".join(gathered))

    def _adapter_emit_data(self, data: bytes) -> None:
        if self._gathered is None:
            super()._adapter_emit_data(data)
        else:
            self._gathered.append(data)

    def abort(self) -> None:
        """End it at once: nothing more is sent. May be called again until it is closed."""
        self._gathered = []
        if not self._is_given_up:
            self._is_given_up = True
            self._terminate_stream(StreamLostError("given up"))


class BrokerLink:
    """One connection with one channel, on which the server confirms each message. Nothing runs
    beside its owner: it works while ``turn`` is called.
    """

    def __init__(self, options: RabbitOptions) -> None:
        self._loop = IOLoop()
        self._loop.activate_poller()
        self._lost: BaseException | None = None
        self._tag = 0
        self.blocked: str | None = None
        """Why the server takes nothing at the moment, where it says so."""
        self.answered: Answered = _to_nobody
        self.returned: Returned = _to_nobody
        self.used = time.monotonic()
        self._connection: Any = None
        try:
            self._connection = self._connect(options)
            self._channel = self._open_channel()
        except BaseException:
            self.abort()
            raise

    def publish(self, exchange: str, key: str, body: bytes, properties: Any) -> int:
        """Hand a message over; its delivery tag. It leaves with the next turns."""
        try:
            self._channel.basic_publish(exchange, key, body, properties, mandatory=True)
        except FAILURES as error:
            raise LinkLost(self._lost or error) from None
        self._tag += 1
        return self._tag

    def turn(self, seconds: float) -> None:
        """Return when something came or went, or after that long. Raises LinkLost."""
        try:
            self._poll(seconds)
        except FAILURES as error:
            self._lost = self._lost or error
        if self._lost is not None:
            raise LinkLost(self._lost)

    def _poll(self, seconds: float) -> None:
        if self._connection is not None:
            self._connection.send_gathered()
        timer = self._loop.call_later(seconds, _to_nobody)
        try:
            self._loop.poll()
            self._loop.process_timeouts()
        finally:
            self._loop.remove_timeout(timer)

    @property
    def is_fit(self) -> bool:
        """Whether it can be used again."""
        if time.monotonic() - self.used > _IDLE_SECONDS:
            return False
        try:
            self.turn(0)
        except LinkLost:
            return False
        return self.blocked is None

    def close(self) -> None:
        """Take leave of the server. All that was handed over is confirmed."""
        if self._connection is not None and self._connection.is_open:
            with suppress(*FAILURES):
                self._connection.close()
        self._end()

    def abort(self) -> None:
        """Send nothing more of what was handed over."""
        if self._connection is not None and not self._connection.is_closed:
            with suppress(*FAILURES):
                self._connection.abort()
        self._end()

    def _end(self) -> None:
        self.answered, self.returned = _to_nobody, _to_nobody
        deadline = time.monotonic() + _CLOSE_SECONDS
        with suppress(*FAILURES):
            while self._connection is not None and not self._connection.is_closed:
                self._poll(_CLOSE_SECONDS)
                if time.monotonic() > deadline:
                    self._connection.abort()
        self._loop.close()

    def _connect(self, options: RabbitOptions) -> Any:
        found: list[Any] = []
        # One after the other; what the last one met is told.
        _Connection.create_connection(
            [parameters(options, each) for each in options.addresses], found.append, self._loop
        )
        self._wait(lambda: bool(found))
        (made,) = found
        if isinstance(made, BaseException):
            raise failure(made, "connecting")
        made.add_on_close_callback(self._on_lost)
        made.add_on_connection_blocked_callback(self._on_blocked)
        made.add_on_connection_unblocked_callback(self._on_unblocked)
        made.gather()
        return made

    def _open_channel(self) -> Any:
        is_ready: list[object] = []
        channel = self._connection.channel(on_open_callback=is_ready.append)
        channel.add_on_close_callback(self._on_lost)
        self._wait(lambda: bool(is_ready))
        is_ready.clear()
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_answer, is_ready.append)
        self._wait(lambda: bool(is_ready))
        return channel

    def _wait(self, is_done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 3 * _CONNECT_SECONDS
        while not is_done():
            try:
                self.turn(_CONNECT_SECONDS)
            except LinkLost as lost:
                raise failure(lost, "connecting") from None
            except ValueError as error:
                # So pika calls a connection that was reset while it was made.
                raise failure(ConnectionResetError(str(error)), "connecting") from None
            if time.monotonic() > deadline:
                raise failure(TimeoutError("the server does not answer"), "connecting")

    def _on_lost(self, _who: object, why: BaseException) -> None:
        # The channel's own reason comes first, and says more.
        self._lost = self._lost or why

    def _on_blocked(self, _connection: object, frame: Any) -> None:
        self.blocked = frame.method.reason or "it gives no reason"

    def _on_unblocked(self, _connection: object, _frame: object) -> None:
        self.blocked = None

    def _on_answer(self, frame: Any) -> None:
        method = frame.method
        self.answered(method.delivery_tag, method.multiple, method.NAME == "Basic.Ack")

    def _on_return(self, _channel: object, method: Any, _properties: object, _body: bytes) -> None:
        self.returned(method.routing_key)


def parameters(options: RabbitOptions, address: BrokerAddress) -> Any:
    """What a connection is made with."""
    secured = None
    if address.is_encrypted:
        secured = pika.SSLOptions(_context(options), address.host)
    return pika.ConnectionParameters(
        host=address.host,
        port=address.port,
        virtual_host=address.vhost,
        credentials=pika.PlainCredentials(address.user, address.password),
        heartbeat=_HEARTBEAT_SECONDS,
        ssl_options=secured,
        socket_timeout=_CONNECT_SECONDS,
        stack_timeout=2 * _CONNECT_SECONDS,
        client_properties={"connection_name": "penstock"},
    )


def _context(options: RabbitOptions) -> ssl.SSLContext:
    tls = options.tls
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.certificate is not None:
            context.load_cert_chain(tls.certificate, tls.key)
    except OSError as error:
        named = ", ".join(name for name in (tls.ca, tls.certificate, tls.key) if name)
        raise DestinationError(
            f"destination rabbitmq: destination.tls cannot be used: {error} ({named})",
            remedy="see whether the files are there and in PEM format, on executors too",
        ) from None
    return context


def _to_nobody(*_told: object) -> None:
    pass


_kept: dict[str, list[BrokerLink]] = {}


def take_link(options: RabbitOptions) -> BrokerLink:
    """One that this process has kept, or a new one. Nobody else uses it until it is kept again."""
    kept = _kept.get(options.model_dump_json(), [])
    while kept:
        link = kept.pop()
        if link.is_fit:
            return link
        link.close()
    return BrokerLink(options)


def keep_link(options: RabbitOptions, link: BrokerLink) -> None:
    """For whoever sends next. All that was handed over is confirmed."""
    link.answered, link.returned = _to_nobody, _to_nobody
    link.used = time.monotonic()
    _kept.setdefault(options.model_dump_json(), []).append(link)


def forget_links(options: RabbitOptions) -> None:
    """Close those that nobody uses."""
    for link in _kept.pop(options.model_dump_json(), []):
        link.close()
