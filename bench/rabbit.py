"""A RabbitMQ to deliver to, and a publisher that does nothing but publish the same bodies."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pika
from pika.adapters.select_connection import SelectConnection

from bench.encoders import captured_changes, encoder_of
from bench.process_usage import usage
from bench.readers import measure_capture
from bench.results import Measurement
from bench.server import BenchDatabase, BenchError, BenchPipeline
from bench.settings import INTO_RABBIT
from bench.workloads import Load
from penstock.destination.families.queue.events import kinds_of
from penstock.destination.rabbitmq.messages import MessageRoutes
from penstock.destination.rabbitmq.options import RabbitOptions
from tests.rabbitmq_server import USERS, VHOST, RabbitServer

BARE = "rabbitmq_bare"
_FORMAT = "debezium"
_UNCONFIRMED = 2000

Body = tuple[str, bytes]
"""Routing key and content."""


class RabbitQueues(RabbitServer):
    """Inside ``with`` the server runs. Each pipeline has an exchange and a queue of its own."""

    def destination_of(self, system: str, pipeline: str) -> dict[str, Any]:
        """The pipeline file's part: Debezium's JSON, and what the system asks for. The queue is
        there, so that everything has to be kept.
        """
        self._bind(pipeline)
        given = {"type": "rabbitmq", "url": self.url(), "password": USERS["penstock"]}
        return {**given, "exchange": pipeline, "format": _FORMAT, **INTO_RABBIT[system]}

    def require_all(self, pipeline: str, changes: int) -> None:
        """A rate counts only if everything arrived. The queue is gone afterwards."""
        with closing(self.connect()) as connection:
            channel = connection.channel()
            declared = channel.queue_declare(pipeline, passive=True)
            found = declared.method.message_count
            channel.queue_delete(pipeline)
        if found < changes:
            raise BenchError(
                f"rabbitmq did not deliver what the source holds: {found:,} messages of "
                f"{changes:,} changes.",
                remedy="It is a bug of the system or of the benchmark: the figures mean nothing.",
            )

    def measure_bare(
        self, database: BenchDatabase, workload: str, pipeline: BenchPipeline, load: Load
    ) -> Measurement:
        """The same bodies, made before the clock runs, from memory: one connection, confirms in
        batches, no heed to keys.
        """
        measure_capture(database, workload, pipeline, load)
        bodies = list(_bodies(database, pipeline))
        name = pipeline.config.name
        self._bind(name)
        before = time.process_time()
        began = time.monotonic()
        _Publisher(self._parameters(), name, bodies).run()
        seconds, spent = time.monotonic() - began, time.process_time() - before
        self.require_all(name, load.changes)
        rss = usage(os.getpid()).peak_rss_mb
        return Measurement(workload, BARE, load.changes, seconds, spent, None, rss)

    def _bind(self, name: str) -> None:
        with closing(self.connect()) as connection:
            channel = connection.channel()
            channel.exchange_declare(name, "topic", durable=True)
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, name, "#")

    def _parameters(self) -> pika.ConnectionParameters:
        credentials = pika.PlainCredentials("penstock", USERS["penstock"])
        return pika.ConnectionParameters("127.0.0.1", self.port, VHOST, credentials)


class _Publisher:
    """Publishes until all is confirmed, with so many messages under way."""

    def __init__(
        self, parameters: pika.ConnectionParameters, exchange: str, bodies: list[Body]
    ) -> None:
        self._exchange = exchange
        self._bodies = bodies
        self._sent = self._confirmed = 0
        self._under_way: set[int] = set()
        self._persistent = pika.BasicProperties(delivery_mode=2)
        self._channel: Any = None
        self._connection = SelectConnection(parameters, self._on_open)

    def run(self) -> None:
        self._connection.ioloop.start()

    def _on_open(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Any) -> None:
        self._channel = channel
        channel.confirm_delivery(self._on_answer, lambda _frame: self._publish())

    def _publish(self) -> None:
        last = min(len(self._bodies), self._confirmed + _UNCONFIRMED)
        for key, body in self._bodies[self._sent : last]:
            self._channel.basic_publish(self._exchange, key, body, self._persistent, mandatory=True)
        self._under_way.update(range(self._sent + 1, last + 1))
        self._sent = max(self._sent, last)

    def _on_answer(self, frame: Any) -> None:
        method = frame.method
        before = len(self._under_way)
        if method.multiple:
            self._under_way = {tag for tag in self._under_way if tag > method.delivery_tag}
        else:
            self._under_way.discard(method.delivery_tag)
        self._confirmed += before - len(self._under_way)
        if self._confirmed == len(self._bodies):
            self._connection.close()
            self._connection.ioloop.stop()
        else:
            self._publish()


def _bodies(database: BenchDatabase, pipeline: BenchPipeline) -> Iterator[Body]:
    encoder = encoder_of(database, pipeline, _FORMAT, tombstones=False)
    options = RabbitOptions.model_validate({"url": "amqp://nowhere"})
    routes = MessageRoutes(options, pipeline.config.name)
    for changes in captured_changes(pipeline):
        events = encoder.events(changes)
        of, kinds = kinds_of(events)
        keys = [routes.key(kind.op, kind.schema, kind.table) for kind in kinds]
        values = events.column("value").to_pylist()
        for number, value in zip(of.tolist(), values, strict=True):
            yield keys[number], value.encode()
