"""Messages on their way to the log where Debezium marks transactions: they wait until all of their
transaction are there.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError

from penstock.cadence import paced
from penstock.config.kafka_source import KafkaSourceConfig
from penstock.model.errors import SourceError
from penstock.source.capture.say import say
from penstock.source.kafka.assembling import (
    BESIDE,
    HeldMessage,
    Release,
    TransactionAssembler,
    Waiting,
)
from penstock.source.kafka.debezium_format import Untold
from penstock.source.kafka.events import Event, Malformed, MessageFormat
from penstock.source.kafka.left_out import LeftOut
from penstock.source.kafka.marks import Unmarked, read_boundary, read_mark, topic_of
from penstock.source.kafka.newer_changes import headers_of
from penstock.source.kafka.offsets import Offsets, Partition, PartitionState
from penstock.source.kafka.schema_topic import SchemaTopic
from penstock.source.kafka.topic_set import TopicSet
from penstock.source.kafka.transcode import Counts

_LOOK_SECONDS = paced(1.0)
_TOLD_SECONDS = paced(5.0)
_SAID_SECONDS = 60.0


class WholeTransactions:
    """Of one session. What it holds was not taken: a restart reads it again."""

    def __init__(
        self,
        source: KafkaSourceConfig,
        offsets: Offsets,
        topics: TopicSet,
        counts: Counts,
        left_out: LeftOut,
    ) -> None:
        self._source = source
        self._topic = source.transaction_topic or ""
        self._offsets = offsets
        self._topics = topics
        self._counts = counts
        self._left_out = left_out
        self.boundaries = Partition(self._topic, 0)
        state = offsets.partitions.get(self.boundaries, PartitionState(0))
        self._assembler: TransactionAssembler[Any] = TransactionAssembler(
            self.boundaries,
            state.ended,
            source.transaction_bytes,
            self._places,
            {
                place: (known.top.commit_lsn, known.top.ordinal, known.top.part)
                for place, known in offsets.partitions.items()
                if known.top is not None
            },
        )
        self._next: dict[Partition, int] = {}
        self._next_look = 0.0
        self._waiting: Waiting | None = None
        self._since = self._said_at = 0.0
        self._began = 0.0
        self.waits: str | None = None
        """What is waited for, in words, where that takes long."""

    @property
    def size(self) -> int:
        """How many bytes are held."""
        return self._assembler.size

    def arrive(self, message: Any) -> Iterator[Release[Any]]:
        """What may be taken once this message has come. Raises SourceError."""
        place, offset = Partition(message.topic(), message.partition()), message.offset()
        if message.error() is not None:
            # The partition's end, which is passed once all before it was taken.
            yield from self._assembler.add(HeldMessage(place, offset, message, BESIDE))
            return
        if offset < self._next.get(place, self._offsets.partitions[place].next):
            return
        self._next[place] = offset + 1
        size = BESIDE + len(message.value() or b"") + len(message.key() or b"")
        entry = HeldMessage(place, offset, message, size, epoch=message.leader_epoch())
        try:
            self._read(entry, message)
        except Malformed as wrong:
            self._left_out.malformed(place, offset, wrong)
            entry.message = None
        before = self._assembler.repeated
        yield from self._assembler.add(entry)
        self._counts.repeated += self._assembler.repeated - before

    def _read(self, entry: HeldMessage[Any], message: Any) -> None:
        place = entry.place
        if place == self.boundaries:
            entry.message, entry.end = None, read_boundary(message.value())
            return
        if message.value() is None:
            # A tombstone: its delete is counted by an END. One that is said again, with a delete
            # that is left out, would delete what came since.
            entry.message = None
            return
        mark = read_mark(message.value(), headers_of(message))
        if isinstance(mark, Unmarked):
            if self._source.split_transactions == "refuse":
                raise SourceError(
                    f"the message at offset {entry.offset} of {place} is a change that names no "
                    "transaction: readers could see a part of the one that it is of",
                    remedy="let Debezium mark transactions (provide.transaction.metadata: true), "
                    "and see who else writes to the topic; or set source.split_transactions to "
                    "accept: such changes are taken where they stand in their partition",
                )
            return
        if mark is not None and topic_of(self._topic, mark.collection) != place.topic:
            raise SourceError(
                f"the message at offset {entry.offset} of {place} is about table "
                f"{mark.collection}, whose rows Debezium writes to "
                f"{topic_of(self._topic, mark.collection)}: another connector writes the topic, "
                "or rows are routed to topics of other names, and how many of a transaction have "
                "to come is not known then",
                remedy="name topics of the connector that writes source.transaction_topic alone, "
                "and let it write to <topic.prefix>.<schema>.<table>; or remove "
                "source.transaction_topic and set source.split_transactions to accept",
            )
        entry.mark = mark

    def _places(self, table: str) -> tuple[Partition, ...] | None:
        return self._topics.places_of(topic_of(self._topic, table))

    def look(self, only: Callable[[frozenset[Partition] | None], object]) -> Iterator[Release[Any]]:
        """Called in each turn; ``only`` chooses what is read on. What may be taken since topics
        came or went. Raises SourceError for what cannot be completed any more.
        """
        only(self._assembler.wanted())
        now = time.monotonic()
        if now < self._next_look:
            return
        self._next_look = now + _LOOK_SECONDS
        yield from self._assembler.again()
        waiting = self._assembler.waiting()
        if waiting is None or self._waiting is None or waiting.xid != self._waiting.xid:
            self._since, self._began, self._said_at = now, time.time(), now
        self._waiting = waiting
        is_long = waiting is not None and now - self._since >= _TOLD_SECONDS
        self.waits = self._words(waiting) if waiting is not None and is_long else None
        if self.waits is not None and now - self._said_at >= _SAID_SECONDS:
            self._said_at = now
            say(self.waits)

    def _words(self, waiting: Waiting) -> str:
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self._began))
        return (
            f"transaction {waiting.xid} waits since {since} UTC for {waiting.lacks} "
            f"({', '.join(waiting.topics)}); {self.size:,} bytes are held"
        )


def learned(
    release: Release[Any], read_as: MessageFormat, schema: SchemaTopic
) -> dict[tuple[Partition, int], Event | None]:
    """What the messages of a transaction say, and ``schema`` what they tell of their tables. Where
    that is something new, all of them have to be read again. Raises SourceError.
    """
    found: dict[tuple[Partition, int], Event | None] = {}
    for entry in release.entries:
        if (message := entry.message) is None or message.error() is not None:
            continue
        said = message.key(), message.value(), headers_of(message)
        # What is malformed is read again when it is taken.
        with suppress(Malformed):
            try:
                found[entry.place, entry.offset] = read_as.read(*said, schema.find)
            except Untold as told:
                schema.learn(told.table)
    return found


def is_end(error: KafkaError) -> bool:
    """Whether it says that the partition was read to its end, which is no error."""
    return bool(error.code() == KafkaError._PARTITION_EOF)
