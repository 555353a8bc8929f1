"""The driver's side of the `rabbitmq` destination."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from penstock.destination.families.queue.at_least_once import AtLeastOnceQueue
from penstock.destination.families.queue.events import Encoder
from penstock.destination.families.queue.oversize import Oversize
from penstock.destination.protocols import NamesSource
from penstock.destination.rabbitmq import exchanges
from penstock.destination.rabbitmq.links import forget_links
from penstock.destination.rabbitmq.messages import MessageRoutes
from penstock.destination.rabbitmq.options import RabbitOptions
from penstock.destination.rabbitmq.sender import RabbitChunkWriter, RabbitSender, RabbitWriter
from penstock.model.source_identity import SourceIdentity
from penstock.model.table_definition import TableDefinition


class RabbitDestination(AtLeastOnceQueue, NamesSource):
    """Sends every change to one exchange."""

    name = "rabbitmq"
    options_model = RabbitOptions
    failpoints = ("rabbitmq.handed_over",)
    options: RabbitOptions

    def __init__(self, options: RabbitOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self._routes = MessageRoutes(options, pipeline)

    def check(self) -> Sequence[str]:
        return exchanges.check(self.options, self._routes.exchange)

    def open(self) -> None:
        make = exchanges.declare if self.options.declare else exchanges.expect
        make(self.options, self._routes.exchange)

    def come_from(self, source: SourceIdentity) -> None:
        self._routes = replace(self._routes, source=source.tag)

    def prepare(self, definitions: Sequence[TableDefinition]) -> None:
        self._formats.know(definitions)
        for table in definitions:
            self._routes.key("truncate", table.schema, table.name)  # raises where it is too long

    def writer(self) -> RabbitWriter:
        return RabbitWriter(self._encoder(), self._routes)

    def chunk_writer(self, table: TableDefinition, *, again: bool = False) -> RabbitChunkWriter:
        return RabbitChunkWriter(self._encoder(), self._routes)

    def _sender(self) -> RabbitSender:
        return RabbitSender(self._routes)

    def close(self) -> None:
        forget_links(self.options)

    def _encoder(self) -> Encoder:
        oversize = Oversize(
            "rabbitmq",
            self.options.max_message_bytes,
            self.options.oversize,
            "raise destination.max_message_bytes, and max_message_size of the server",
        )
        return Encoder(self._formats.format(), self.options.lanes, oversize)
