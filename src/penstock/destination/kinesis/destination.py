"""The driver's side of the `kinesis` destination."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import closing

import pyarrow as pa

from penstock.destination.contract import (
    Capabilities,
    Receipt,
)
from penstock.destination.families.queue.destination import QueueDestination
from penstock.destination.families.queue.events import Encoder
from penstock.destination.families.queue.formats import Formats
from penstock.destination.families.queue.names import names_tables
from penstock.destination.families.queue.oversize import Oversize
from penstock.destination.kinesis.clients import forget_client
from penstock.destination.kinesis.options import KinesisOptions
from penstock.destination.kinesis.records import LARGEST
from penstock.destination.kinesis.sender import (
    KinesisChunkWriter,
    KinesisSender,
    KinesisWriter,
    Routes,
)
from penstock.destination.kinesis.streams import Streams
from penstock.model.lsn import Position
from penstock.model.table_definition import TableDefinition
from penstock.model.watermarks import Watermarks


class KinesisDestination(QueueDestination):
    """Sends every change, at least once; what it has sent, the change log's reader remembers."""

    name = "kinesis"
    options_model = KinesisOptions
    failpoints = ("kinesis.called",)
    options: KinesisOptions
    capabilities = Capabilities(
        mode="append",
        exactly_once=False,
        remembers=False,
        atomic=False,
        batch_age=0.2,
        sends_at_once=True,
        tells_by_definitions=True,
    )

    def __init__(self, options: KinesisOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        self._routes = Routes(options, pipeline)
        # A tombstone tells a log that compacts; here it would be a record without content.
        debezium = options.debezium.model_copy(update={"tombstones": False})
        self._formats = Formats(options.model_copy(update={"debezium": debezium}), pipeline)
        self._known: set[str] = set()
        self._schema_sent: Position | None = None

    def check(self) -> Sequence[str]:
        with closing(Streams(self.options)) as streams:
            streams.check(self._own_streams())
        return ()

    def open(self) -> None:
        self._make(self._own_streams())

    def prepare(self, definitions: Sequence[TableDefinition]) -> None:
        self._formats.know(definitions)
        self._make(self._routes.stream(table.schema, table.name) for table in definitions)

    def committed(self) -> Watermarks | None:
        return None

    def writer(self) -> KinesisWriter:
        return KinesisWriter(self._encoder(), self._routes)

    def commit(self, receipts: Sequence[Receipt], watermarks: Watermarks) -> None:
        """What tasks sent is there."""

    # -- schema changes ------------------------------------------------------------------------

    def _was_told(self, position: Position) -> bool:
        return self._schema_sent is not None and position <= self._schema_sent

    def _tell_schema(self, position: Position, events: pa.RecordBatch) -> None:
        with KinesisSender(self._routes) as sender:
            sender.send_events(events)
            sender.finish()
        self._schema_sent = position

    # -- copies --------------------------------------------------------------------------------

    def chunk_writer(self, table: TableDefinition, *, again: bool = False) -> KinesisChunkWriter:
        return KinesisChunkWriter(self._encoder(), self._routes)

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
