"""The driver's side of the `kafka` destination."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from penstock.destination.contract import (
    Capabilities,
    ChunkWriter,
    Receipt,
    SchemaChange,
)
from penstock.destination.families.queue.destination import QueueDestination
from penstock.destination.families.queue.events import Encoder
from penstock.destination.families.queue.formats import Formats
from penstock.destination.families.queue.names import names_tables
from penstock.destination.families.queue.oversize import Oversize
from penstock.destination.kafka.message_slots import Outgoing
from penstock.destination.kafka.options import TOPICS, KafkaOptions
from penstock.destination.kafka.positions import (
    DRIVER,
    NOTHING_SENT,
    DriverRecord,
    Sent,
    lane_partition,
    lane_producer,
    lanes_left,
    lanes_text,
    read_driver,
    read_lanes,
)
from penstock.destination.kafka.producers import forget_producer
from penstock.destination.kafka.routes import Routes
from penstock.destination.kafka.sender import (
    KafkaChunkWriter,
    KafkaWriter,
    PlainSender,
    forget_lanes,
)
from penstock.destination.kafka.topics import Topics
from penstock.destination.kafka.transactions import TransactionalProducer
from penstock.destination.protocols import NamesSource, Ticket
from penstock.model.errors import DestinationError
from penstock.model.lsn import Position
from penstock.model.schema_change import TableChange
from penstock.model.source_identity import SourceIdentity
from penstock.model.table_definition import TableDefinition
from penstock.model.watermarks import Watermarks


class KafkaDestination(QueueDestination, NamesSource):
    """Sends every change; with ``transactional`` it also remembers how far it has come."""

    name = "kafka"
    options_model = KafkaOptions
    failpoints = (
        "kafka.handed_over",
        "kafka.lane_committed",
    )
    options: KafkaOptions

    def __init__(self, options: KafkaOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        exactly_once = options.transactional
        self.capabilities = Capabilities(
            mode="append",
            exactly_once=exactly_once,
            remembers=exactly_once,
            atomic=False,
            batch_age=0.2,
            sends_at_once=True,
            tells_by_definitions=True,
        )
        self._positions = TOPICS.name(options.positions_topic, pipeline)
        self._formats = Formats(options, pipeline)
        self._partitions: dict[str, int] = {}
        self._topics = Topics(options)
        self._driver: TransactionalProducer | None = None
        self._is_open = False
        self._source = ""
        self._announced: dict[int, TableDefinition] = {}
        self._record = DriverRecord(None, None, lanes_text(options.lanes))

    def check(self) -> Sequence[str]:
        known = self._topics.partitions()
        wanted = set(self._own_topics())
        if not names_tables(self.options.topic):
            wanted.add(TOPICS.name(self.options.topic, self.pipeline))
        made = wanted.copy() if self.options.topics.create else set()
        if self.options.transactional:
            wanted.add(self._positions)
            made.add(self._positions)
        if there := wanted & known.keys():
            self._topics.expect_writable(there)
        if missing := made - known.keys():
            self._topics.try_to_make(missing)
        absent = sorted(wanted - made - known.keys())
        return [f"topic {name} does not exist" for name in absent]

    def open(self) -> None:
        self._partitions = self._topics.make(self._own_topics())
        if not self.options.transactional:
            return
        lanes = self.options.lanes.count
        self._topics.make_positions(self._positions, lane_partition(lanes))
        self._driver = self._new_driver()
        self._is_open = True
        found = read_driver(self.options, self._positions)
        if found is not None and found.lanes != lanes_text(self.options.lanes):
            partitions = self._topics.partitions()[self._positions]
            # Whatever a run with those lanes left open is given up.
            self._take_lanes_over(partitions)
            left = lanes_left(
                read_lanes(self.options, self._positions, partitions),
                found.frontier,
                self.options.lanes,
            )
            if left is not None:
                raise left
        self._take_up(found)
        if found is None or found.lanes != self._record.lanes:
            # Before anything is sent in them: who comes next, with others, has to know.
            self._tell(self._record, None)

    def come_from(self, source: SourceIdentity) -> None:
        self._source = source.tag

    def prepare(self, definitions: Sequence[TableDefinition]) -> None:
        self._formats.know(definitions)
        routes = self._routes()
        names = {
            routes.topic(op, table.schema, table.name)
            for table in definitions
            for op in ("insert", "schema")
        }
        if names.difference(self._partitions):
            self._partitions = self._topics.make(names)
        if self.options.announce:
            self._announce(
                [table for table in definitions if table != self._announced.get(table.oid)]
            )

    def _announce(self, tables: Sequence[TableDefinition]) -> None:
        """Tell what tables look like, before any of their rows: a message alone does not say it."""
        if not tables:
            return
        told = SchemaChange(
            Position(0, 0), 0, "ANNOUNCE", tuple(TableChange(None, table) for table in tables)
        )
        self._send(self._encoder().schema_change(told))
        self._announced |= {table.oid: table for table in tables}

    def committed(self) -> Watermarks | None:
        if self.options.transactional and self._driver is None:
            # Not opened, or a commit failed: only the topic tells what is there. What the failed
            # one left open is decided by the next.
            driver = self._new_driver() if self._is_open else None
            self._take_up(self._read())
            self._driver = driver
        return self._record.watermarks

    def writer(self) -> KafkaWriter:
        return KafkaWriter(self._encoder(), self._routes())

    def commit(self, receipts: Sequence[Receipt], watermarks: Watermarks) -> None:
        if self.options.transactional:
            at = watermarks.frontier
            self._tell(replace(self._record, frontier=at, source=watermarks.source), None)

    # -- schema changes ------------------------------------------------------------------------

    def _was_told(self, position: Position) -> bool:
        return self._record.schema is not None and Sent(*position, 0) <= self._record.schema

    def _tell_schema(self, position: Position, events: pa.RecordBatch) -> None:
        record = replace(self._record, schema=Sent(*position, 0))
        if self.options.transactional:
            self._tell(record, events)
        else:
            self._send(events)
            self._record = record

    # -- copies --------------------------------------------------------------------------------

    def chunk_writer(self, table: TableDefinition, *, again: bool = False) -> KafkaChunkWriter:
        return KafkaChunkWriter(self._encoder(), self._routes())

    def chunk_ticket(self, table: TableDefinition, *, again: bool = False) -> Ticket:
        topic = self._routes().topic("insert", table.schema, table.name)
        partitions = {topic: self._routes().partitions.get(topic, 1)}
        return {"partitions": partitions, "source": self._source}

    def ticket_writer(self, table: TableDefinition, ticket: Ticket) -> ChunkWriter:
        self._partitions = {**self._partitions, **ticket["partitions"]}
        self._source = ticket["source"]
        return super().ticket_writer(table, ticket)

    def forget(self) -> Sequence[str]:
        """Positions are written over: what was sent stays, and a slot made anew begins anew."""
        partitions = self._topics.partitions().get(self._positions, 0)
        if not self.options.transactional or not partitions:
            return ()
        nothing = DriverRecord(None, None, lanes_text(self.options.lanes))
        driver = self._new_driver()
        try:
            # Workers that have kept a lane go by what is to mean nothing.
            self._take_lanes_over(partitions)
            driver.send(
                Outgoing.single(self._positions, DRIVER, b"driver", nothing.to_json()),
                *(
                    Outgoing.single(self._positions, partition, b"lane", NOTHING_SENT)
                    for partition in range(DRIVER + 1, partitions)
                ),
            )
        finally:
            driver.discard()
        return [f"positions in topic {self._positions}"]

    def close(self) -> None:
        forget_producer(self.options)
        forget_lanes(self.options)
        if self._driver is not None:
            self._driver.discard()
            self._driver = None
        self._is_open = False

    def _own_topics(self) -> list[str]:
        options = self.options
        # A pattern with a table in it is made when the table is known.
        patterns = (options.schema_topic, options.message_topic)
        return [
            TOPICS.name(pattern, self.pipeline) for pattern in patterns if not names_tables(pattern)
        ]

    def _encoder(self) -> Encoder:
        oversize = Oversize(
            "kafka",
            self.options.max_message_bytes,
            self.options.oversize,
            "raise destination.max_message_bytes, and max.message.bytes of the topic",
        )
        return Encoder(self._formats.format(), self.options.lanes, oversize)

    def _routes(self) -> Routes:
        return Routes(self.options, self.pipeline, self._partitions, self._source)

    def _send(self, events: pa.RecordBatch) -> None:
        with PlainSender(self._routes()) as sender:
            sender.send_events(events)
            sender.finish()

    def _read(self) -> DriverRecord | None:
        if self._positions not in self._topics.partitions():
            return None
        return read_driver(self.options, self._positions)

    def _take_up(self, found: DriverRecord | None) -> None:
        if found is not None:
            self._record = replace(found, lanes=lanes_text(self.options.lanes))

    def _new_driver(self) -> TransactionalProducer:
        return TransactionalProducer(self.options, f"{self._positions}.driver")

    def _take_lanes_over(self, partitions: int) -> None:
        """Nobody who has one now sends anything more in it without reading its position again."""
        for lane in range(partitions - lane_partition(0)):
            TransactionalProducer(self.options, lane_producer(self._positions, lane)).discard()

    def _tell(self, record: DriverRecord, events: pa.RecordBatch | None) -> None:
        """Store what the driver knows, in one transaction with what it sends."""
        messages = [] if events is None else [self._routes().outgoing(events)]
        messages.append(Outgoing.single(self._positions, DRIVER, b"driver", record.to_json()))
        if self._driver is None:
            self._driver = self._new_driver()
        try:
            self._driver.send(*messages)
        except DestinationError:
            # Whether it was committed is not known; committed() will ask.
            self._driver.discard()
            self._driver = None
            raise
        self._record = record
