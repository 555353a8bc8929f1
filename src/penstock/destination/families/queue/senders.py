"""What senders to queues share: events come to them packed, or as copied rows."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from penstock.decode.changes import ChangeSet
from penstock.destination.contract import (
    ChunkReceipt,
    ChunkWriter,
    LanedWriter,
    LanePart,
    LaneSender,
    Receipt,
)
from penstock.destination.families.queue.events import Encoder, events_of
from penstock.model.table_rows import ChunkReader


class EventSender(LaneSender):
    """Takes events as well as packed parts of them."""

    def send(self, part: LanePart) -> None:
        self.send_events(events_of(part))

    @abstractmethod
    def send_events(self, events: pa.RecordBatch) -> None:
        """As ``send``."""


@dataclass(frozen=True)
class EventWriter(LanedWriter):
    """Encodes changes; who sends them says ``sender``. Pickled to the executors."""

    encoder: Encoder

    @property
    def lanes(self) -> int:  # type: ignore[override]
        return self.encoder.lanes.count

    def encode(self, changes: Iterable[ChangeSet]) -> Iterator[LanePart]:
        return self.encoder.parts(changes)

    def encode_here(self, changes: Iterable[ChangeSet]) -> Iterator[LanePart]:
        return self.encoder.parts_here(changes)


@dataclass(frozen=True)
class EventChunkWriter(ChunkWriter):
    """Sends copied rows, at least once. Pickled to the executors."""

    encoder: Encoder

    @abstractmethod
    def sender(self) -> EventSender:
        """Something that sends, on the executor that calls this."""

    def write(self, rows: ChunkReader) -> ChunkReceipt:
        count = size = 0
        with self.sender() as sender:
            for piece in rows.texts():
                events = self.encoder.copied(piece)
                count += len(piece)
                size += events.nbytes
                sender.send_events(events)
            sender.finish()
        return ChunkReceipt(count, size, resent=sender.resent, unroutable=sender.unroutable)


def count_receipt(count: int) -> Receipt:
    """How many events were sent."""
    return json.dumps({"messages": count}).encode()
