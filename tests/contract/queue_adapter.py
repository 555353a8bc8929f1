"""What the suite does alike with all queues."""

from __future__ import annotations

import uuid
from abc import abstractmethod
from typing import Any

from penstock.destination.contract import Destination
from penstock.testing import Adapter, MemoryChange, change_from_json, in_commit_order
from tests.queue_events import without_departures


class QueueAdapter(Adapter):
    """``name`` is one that no other test has."""

    tells_schema = True
    chunk_stands_once = False
    chunk_waits_for_commit = False
    chunk_is_sent = True
    keeps_all_order = False

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex[:8]
        self._made: list[Destination] = []

    @abstractmethod
    def connect(self) -> Destination:
        """A destination that sends to what has this adapter's name."""

    @abstractmethod
    def events(self) -> list[dict[str, Any]]:
        """All that is there, in an order that the queue keeps; numbers are texts."""

    def make(self) -> Destination:
        self._made.append(self.connect())
        return self._made[-1]

    def close(self) -> None:
        """Let go of what the destinations hold."""
        for destination in self._made:
            destination.close()

    def delivered(self) -> list[MemoryChange]:
        return in_commit_order(change for change in self._changes() if change.op != "read")

    def copied(self) -> list[MemoryChange]:
        return [change for change in self._changes() if change.op == "read"]

    def _changes(self) -> list[MemoryChange]:
        return [change_from_json(event) for event in without_departures(self.events())]
