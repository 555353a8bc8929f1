"""The driver's side of the `kinesis` destination."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing

from penstock.destination.families.queue.at_least_once import AtLeastOnceQueue
from penstock.destination.families.queue.events import Encoder
from penstock.destination.families.queue.names import names_tables
from penstock.destination.families.queue.oversize import Oversize
from penstock.destination.kinesis.clients import forget_client
from penstock.destination.kinesis.options import KinesisOptions
from penstock.destination.kinesis.records import LARGEST
from penstock.destination.kinesis.sender import (
    KinesisChunkWriter,
    KinesisSender,
    KinesisWriter,
    StreamRoutes,
)
from penstock.destination.kinesis.streams import Streams
from penstock.model.table_definition import TableDefinition


class KinesisDestination(AtLeastOnceQueue):
    """Sends every change to streams."""

    name = "kinesis"
    options_model = KinesisOptions
    failpoints = ("kinesis.called",)
    options: KinesisOptions

    def __init__(self, options: KinesisOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self._routes = StreamRoutes(options, pipeline)
        self._known: set[str] = set()

    def check(self) -> Sequence[str]:
        with closing(Streams(self.options)) as streams:
            streams.check(self._own_streams())
        return ()

    def open(self) -> None:
        self._make(self._own_streams())

    def prepare(self, definitions: Sequence[TableDefinition]) -> None:
        self._formats.know(definitions)
        self._make(self._routes.stream(table.schema, table.name) for table in definitions)

    def writer(self) -> KinesisWriter:
        return KinesisWriter(self._encoder(), self._routes)

    def chunk_writer(self, table: TableDefinition, *, again: bool = False) -> KinesisChunkWriter:
        return KinesisChunkWriter(self._encoder(), self._routes)

    def _sender(self) -> KinesisSender:
        return KinesisSender(self._routes)

    def close(self) -> None:
        forget_client(self.options)

    def _own_streams(self) -> list[str]:
        """Those that need no table to be known."""
        names = {self._routes.other}
        if not names_tables(self.options.stream):
            # A pattern without a table gives the same for any.
            names.add(self._routes.stream("public", "any"))
        return sorted(names)

    def _make(self, names: Iterable[str]) -> None:
        new = sorted(set(names) - self._known)
        if new:
            with closing(Streams(self.options)) as streams:
                streams.make(new)
            self._known.update(new)

    def _encoder(self) -> Encoder:
        oversize = Oversize(
            "kinesis",
            LARGEST,
            self.options.oversize,
            "leave out large columns (filter.columns)",
        )
        return Encoder(self._formats.format(), self.options.lanes, oversize, keys_are_lanes=True)
