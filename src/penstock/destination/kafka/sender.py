"""The executor's side: encodes changes, and sends them lane by lane."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.decode.changes import ChangeSet
from penstock.destination.contract import (
    LanePart,
    LaneSender,
    Receipt,
)
from penstock.destination.families.queue.events import events_of
from penstock.destination.families.queue.senders import (
    EventChunkWriter,
    EventSender,
    EventWriter,
    count_receipt,
)
from penstock.destination.kafka.message_slots import Outgoing
from penstock.destination.kafka.options import TOPICS, KafkaOptions
from penstock.destination.kafka.positions import (
    Sent,
    lane_partition,
    lane_producer,
    read_lane,
    sent_to_json,
)
from penstock.destination.kafka.producers import forget_producer, kept_producer
from penstock.destination.kafka.routes import Routes
from penstock.destination.kafka.transactions import TransactionalProducer
from penstock.failpoints import failpoint
from penstock.model.errors import DestinationUnavailable, Fenced

_CACHED_CHANGES = 16_384


@dataclass(frozen=True)
class KafkaWriter(EventWriter):
    """Encodes changes, and sends them lane by lane."""

    routes: Routes
    in_one_task = True

    @property
    def most_changes(self) -> int | None:  # type: ignore[override]
        """A transaction should be large; else all that is made of changes should stay small enough
        for the processor's caches.
        """
        return None if self.routes.options.transactional else _CACHED_CHANGES

    def encode_here(self, changes: Iterable[ChangeSet]) -> Iterator[LanePart]:
        """One producer keeps the order of all that it is given. Only positions are by lane."""
        if self.routes.options.transactional:
            return super().encode_here(changes)
        return self.encoder.whole(changes)

    def sender(self) -> LaneSender:
        if self.routes.options.transactional:
            return TransactionalSender(self.routes)
        return PlainSender(self.routes)


class PlainSender(EventSender):
    """At least once: what is sent again after a crash comes again, in the same order."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._producer = kept_producer(routes.options)
        self._count = 0

    def send_events(self, events: pa.RecordBatch) -> None:
        self._producer.produce(self._routes.outgoing(events))
        self._count += len(events)
        failpoint("kafka.handed_over")

    def finish(self) -> Receipt:
        self._producer.flush()
        return count_receipt(self._count)

    def give_up(self) -> None:
        forget_producer(self._routes.options)


class _Lane:
    """One lane's producer, and what it has sent."""

    def __init__(self, routes: Routes, lane: int) -> None:
        options = routes.options
        self._lane = lane
        self._topic = TOPICS.name(options.positions_topic, routes.pipeline)
        self._producer = TransactionalProducer(options, lane_producer(self._topic, lane))
        # Only now: no earlier transaction of this lane is open any more.
        self._sent = read_lane(options, self._topic, lane)

    def send(self, routes: Routes, events: pa.RecordBatch) -> int:
        """Send those that were not sent before, and say so in the same transaction."""
        events = _behind(events, self._sent)
        if not len(events):
            return 0
        messages = routes.outgoing(events)
        sent = _last(events)
        value = sent_to_json(sent, routes.options.lanes)
        position = Outgoing.single(self._topic, lane_partition(self._lane), b"lane", value)
        self._producer.send(messages, position)
        self._sent = sent
        return len(events)

    def discard(self) -> None:
        self._producer.discard()


_lanes: dict[tuple[str, str, int], _Lane] = {}
"""Those that this process has sent to; another that sends to one of them fences ours."""


def forget_lanes(options: KafkaOptions) -> None:
    """Let go of all of a destination's lanes that this process has sent to."""
    name = options.model_dump_json()
    for key in [key for key in _lanes if key[0] == name]:
        _lanes.pop(key).discard()


class TransactionalSender(LaneSender):
    """Exactly once, lane by lane."""

    def __init__(self, routes: Routes) -> None:
        self._routes = routes
        self._name = routes.options.model_dump_json()
        self._used: set[int] = set()
        self._count = 0

    def send(self, part: LanePart) -> None:
        self._used.add(part.lane)
        events = events_of(part)
        try:
            self._count += self._lane(part.lane).send(self._routes, events)
        except Fenced:
            # Another executor has had the lane since: it is ours again, from where that one left.
            self._forget(part.lane)
            try:
                self._count += self._lane(part.lane).send(self._routes, events)
            except Fenced as error:
                raise DestinationUnavailable(error.message, remedy=error.remedy) from None
        failpoint("kafka.lane_committed")

    def finish(self) -> Receipt:
        return count_receipt(self._count)

    def give_up(self) -> None:
        for lane in self._used:
            self._forget(lane)

    def _lane(self, number: int) -> _Lane:
        key = (self._name, self._routes.pipeline, number)
        if key not in _lanes:
            _lanes[key] = _Lane(self._routes, number)
        return _lanes[key]

    def _forget(self, number: int) -> None:
        lane = _lanes.pop((self._name, self._routes.pipeline, number), None)
        if lane is not None:
            lane.discard()


@dataclass(frozen=True)
class KafkaChunkWriter(EventChunkWriter):
    """Also where changes come exactly once."""

    routes: Routes

    def sender(self) -> PlainSender:
        return PlainSender(self.routes)


def _behind(events: pa.RecordBatch, sent: Sent | None) -> pa.RecordBatch:
    """The events that stand behind what was sent."""
    if sent is None or not len(events):
        return events
    commit_lsn, ordinal, part = (
        np.asarray(events.column(name)) for name in ("commit_lsn", "ordinal", "part")
    )
    is_new = (commit_lsn > sent.commit_lsn) | (
        (commit_lsn == sent.commit_lsn)
        & ((ordinal > sent.ordinal) | ((ordinal == sent.ordinal) & (part > sent.part)))
    )
    if is_new.all():
        return events
    # They are in order: what is left is the end.
    return events.slice(int(np.argmax(is_new))) if is_new.any() else events.slice(0, 0)


def _last(events: pa.RecordBatch) -> Sent:
    last = len(events) - 1
    return Sent(*(events.column(name)[last].as_py() for name in ("commit_lsn", "ordinal", "part")))
