"""The executor's side: encodes changes, and sends them lane by lane."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.destination.contract import Receipt
from penstock.destination.families.queue.events import PART_BYTES, in_one, kinds_of
from penstock.destination.families.queue.senders import (
    EventChunkWriter,
    EventSender,
    EventWriter,
    count_receipt,
)
from penstock.destination.kinesis.clients import forget_client, kept_client
from penstock.destination.kinesis.delivery import KinesisDelivery
from penstock.destination.kinesis.options import STREAMS, KinesisOptions
from penstock.destination.kinesis.records import records

_OTHERS = ("message", "schema")


@dataclass(frozen=True)
class StreamRoutes:
    """Which stream an event goes to."""

    options: KinesisOptions
    pipeline: str

    @property
    def other(self) -> str:
        """The stream of messages and schema changes."""
        return STREAMS.name(self.options.other_stream, self.pipeline)

    def stream(self, schema: str, table: str) -> str:
        """That of a table's rows."""
        return STREAMS.name(self.options.stream, self.pipeline, schema, table)

    def by_stream(self, events: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
        """The events of each stream, in order."""
        of, kinds = kinds_of(events)
        streams = np.array(
            [
                self.other if kind.op in _OTHERS else self.stream(kind.schema, kind.table)
                for kind in kinds
            ]
        )[of]
        names = np.unique(streams).tolist()
        for name in names:
            rows = np.flatnonzero(streams == name)
            yield name, events if len(names) == 1 else events.take(pa.array(rows))


@dataclass(frozen=True)
class KinesisWriter(EventWriter):
    """Encodes changes, and sends them lane by lane."""

    routes: StreamRoutes

    def sender(self) -> KinesisSender:
        return KinesisSender(self.routes)


class KinesisSender(EventSender):
    """At least once. Small parts wait for others, as a call can take many records."""

    def __init__(self, routes: StreamRoutes, *, ordered: bool = True) -> None:
        self._routes = routes
        self._ordered = ordered
        options = routes.options
        self._delivery = KinesisDelivery(kept_client(options), options.delivery_timeout)
        self._held: list[pa.RecordBatch] = []
        self._count = 0

    def send_events(self, events: pa.RecordBatch) -> None:
        self._held.append(events)
        if sum(held.nbytes for held in self._held) >= PART_BYTES:
            self._send_held()

    def finish(self) -> Receipt:
        self._send_held()
        return count_receipt(self._count)

    def give_up(self) -> None:
        self._held.clear()
        forget_client(self._routes.options)

    def _send_held(self) -> None:
        held, self._held = self._held, []
        if not held:
            return
        for stream, events in self._routes.by_stream(in_one(held)):
            made = records(events, aggregate=self._routes.options.aggregate)
            self._delivery.send(stream, made if self._ordered else made.unordered())
            self._count += len(events)
        self.resent = self._delivery.resent


@dataclass(frozen=True)
class KinesisChunkWriter(EventChunkWriter):
    """Rows of one snapshot have no order among each other."""

    routes: StreamRoutes

    def sender(self) -> KinesisSender:
        return KinesisSender(self.routes, ordered=False)
