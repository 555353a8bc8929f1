"""Queues that remember nothing of a pipeline: the change log's reader does."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import pyarrow as pa

from penstock.destination.contract import Capabilities, Receipt
from penstock.destination.families.queue.destination import QueueDestination
from penstock.destination.families.queue.formats import Formats
from penstock.destination.families.queue.options import FormatOptions
from penstock.destination.families.queue.senders import EventSender
from penstock.model.lsn import Position
from penstock.model.watermarks import Watermarks


class AtLeastOnceQueue(QueueDestination):
    """Sends every change, at least once. Keeps no key's last message alone, as a log that compacts
    does: tombstones are left out.
    """

    options: FormatOptions
    capabilities = Capabilities(
        mode="append",
        exactly_once=False,
        remembers=False,
        atomic=False,
        batch_age=0.2,
        sends_at_once=True,
        tells_by_definitions=True,
    )

    def __init__(self, options: FormatOptions, pipeline: str) -> None:
        super().__init__(options, pipeline)
        debezium = options.debezium.model_copy(update={"tombstones": False})
        self._formats = Formats(options.model_copy(update={"debezium": debezium}), pipeline)
        self._schema_sent: Position | None = None

    @abstractmethod
    def _sender(self) -> EventSender:
        """For events that the driver sends itself."""

    def committed(self) -> Watermarks | None:
        return None

    def commit(self, receipts: Sequence[Receipt], watermarks: Watermarks) -> None:
        """What tasks sent is there."""

    def _was_told(self, position: Position) -> bool:
        return self._schema_sent is not None and position <= self._schema_sent

    def _tell_schema(self, position: Position, events: pa.RecordBatch) -> None:
        with self._sender() as sender:
            sender.send_events(events)
            sender.finish()
        self._schema_sent = position
