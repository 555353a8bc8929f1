"""How far a pipeline has come, kept in a topic of its own, in the transactions of the data.

Partition 0 holds what the driver says, partition n + 1 what was sent last in lane n. Each has one
key: compaction keeps the last record.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from penstock.destination.families.queue.options import LaneOptions
from penstock.destination.kafka.failures import failure, failure_of, unavailable
from penstock.destination.kafka.options import KafkaOptions
from penstock.model.errors import DestinationError, DestinationUnavailable
from penstock.model.lsn import Frontier
from penstock.model.source_identity import SourceIdentity
from penstock.model.watermarks import Watermarks

DRIVER = 0
_TIMEOUT_SECONDS = 30.0
_DECISION_SECONDS = 30.0
_PAUSE_SECONDS = 0.05
# A topic that was just made has no leader for a moment.
_PASSING = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
)
# The client looks for a group, which nothing uses; without a right to it, it reads all the same.
_OF_GROUP = KafkaError.GROUP_AUTHORIZATION_FAILED
# Records of transactions that were given up, and marks of all, stand between those that count.
_FIRST_LOOK = 16


class Sent(NamedTuple):
    """The last message of a lane: its change's position, and which message of the change."""

    commit_lsn: int
    ordinal: int
    part: int


@dataclass(frozen=True)
class DriverRecord:
    """What all lanes hold, and up to which change schema events were sent.

    ``lanes`` is what the lanes were when it was written: they count only together. ``source`` says
    of which source the frontier is; what older versions wrote does not.
    """

    frontier: Frontier | None
    schema: Sent | None
    lanes: str
    source: SourceIdentity | None = None

    @property
    def watermarks(self) -> Watermarks | None:
        return None if self.frontier is None else Watermarks(self.frontier, source=self.source)

    def to_json(self) -> bytes:
        value = {
            "frontier": None if self.frontier is None else self.frontier.to_json(),
            "schema": self.schema,
            "lanes": self.lanes,
            "source": None if self.source is None else self.source.to_json(),
        }
        return json.dumps(value).encode()

    @classmethod
    def from_json(cls, value: bytes) -> DriverRecord:
        found = json.loads(value)
        frontier, schema, source = found["frontier"], found["schema"], found.get("source")
        return cls(
            None if frontier is None else Frontier.from_json(frontier),
            None if schema is None else Sent(*schema),
            found["lanes"],
            None if source is None else SourceIdentity.from_json(source),
        )


def lanes_text(lanes: LaneOptions) -> str:
    return f"{lanes.by}/{lanes.count}"


def lane_partition(lane: int) -> int:
    return lane + 1


def lane_producer(topic: str, lane: int) -> str:
    """Under which name the transactions of a lane are made."""
    return f"{topic}.{lane}"


NOTHING_SENT = json.dumps({"sent": Sent(0, 0, 0), "lanes": ""}).encode()
"""What stands in place of a lane's position that means nothing any more."""


def sent_to_json(sent: Sent, lanes: LaneOptions) -> bytes:
    return json.dumps({"sent": sent, "lanes": lanes_text(lanes)}).encode()


def read_lane(options: KafkaOptions, topic: str, lane: int) -> Sent | None:
    """What was sent last in a lane; call it when no transaction of the lane can be open."""
    value = _last_value(options, topic, lane_partition(lane))
    if value is None:
        return None
    found: dict[str, Any] = json.loads(value)
    if found["lanes"] != lanes_text(options.lanes):
        # The driver saw to it that nothing of those lanes is left.
        return None
    return Sent(*found["sent"])


def read_lanes(options: KafkaOptions, topic: str, partitions: int) -> list[tuple[str, Sent]]:
    """What was sent last in all lanes, also in those of other lane options."""
    values = [_last_value(options, topic, number) for number in range(1, partitions)]
    found = [json.loads(value) for value in values if value is not None]
    return [(each["lanes"], Sent(*each["sent"])) for each in found]


def read_driver(options: KafkaOptions, topic: str) -> DriverRecord | None:
    value = _last_value(options, topic, DRIVER)
    return None if value is None else DriverRecord.from_json(value)


def _last_value(options: KafkaOptions, topic: str, partition: int) -> bytes | None:
    """The value of the last committed record of a partition; waits for transactions there that
    nobody has decided yet.
    """
    place = TopicPartition(topic, partition)
    try:
        with _consumer(options, "read_uncommitted") as consumer:
            _, written = bounds(consumer, place)
        with _consumer(options, "read_committed") as consumer:
            low, high = _decided(consumer, place, written)
            width = _FIRST_LOOK
            while low < high:
                first = max(low, high - width)
                value = _read_on(consumer, topic, partition, first, high)
                if value is not None or first == low:
                    return value
                width *= 16
            return None
    except KafkaException as error:
        raise failure(error, f"reading topic {topic}") from None


@contextmanager
def _consumer(options: KafkaOptions, isolation: str) -> Iterator[Consumer]:
    consumer = Consumer(
        {
            **options.connection,
            # Asked for by the client, and not used: nothing is committed under it.
            "group.id": "penstock",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    try:
        yield consumer
    finally:
        consumer.close()


def _decided(consumer: Consumer, place: TopicPartition, written: int) -> tuple[int, int]:
    """The bounds of what may be read, once that is all that was ``written``.

    A commit is answered before its mark is in every partition: until then its records are not to
    be seen, and the partition seems to end before them.
    """
    deadline = time.monotonic() + _DECISION_SECONDS
    while True:
        low, high = bounds(consumer, place)
        if high >= written:
            return low, high
        if time.monotonic() > deadline:
            raise unavailable(
                f"destination kafka: a transaction in partition {place.partition} of topic "
                f"{place.topic} was neither committed nor given up in {_DECISION_SECONDS:g} s",
                None,
            )
        time.sleep(_PAUSE_SECONDS)


def bounds(consumer: Consumer, place: TopicPartition) -> tuple[int, int]:
    """The first offset of a partition, and the one behind its last."""
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while True:
        try:
            found = consumer.get_watermark_offsets(place, timeout=_TIMEOUT_SECONDS)
        except KafkaException as error:
            if error.args[0].code() not in _PASSING or time.monotonic() > deadline:
                raise
            time.sleep(_PAUSE_SECONDS)
        else:
            if found is None:
                raise _silent(place.topic)
            return found


def _silent(topic: str) -> DestinationUnavailable:
    return unavailable(
        f"destination kafka: topic {topic} did not answer in {_TIMEOUT_SECONDS:g} s", None
    )


def _read_on(consumer: Consumer, topic: str, partition: int, first: int, end: int) -> bytes | None:
    """The last value from an offset on, or one that came meanwhile: where somebody writes all the
    time, there may be no end to see but that which was known, ``end``.
    """
    consumer.assign([TopicPartition(topic, partition, first)])
    value: bytes | None = None
    while True:
        message = consumer.poll(_TIMEOUT_SECONDS)
        if message is None:
            raise _silent(topic)
        error = message.error()
        if error is None:
            value = message.value()
            if (message.offset() or 0) >= end - 1:
                return value
        elif error.code() == KafkaError._PARTITION_EOF:
            return value
        elif error.code() not in (*_PASSING, _OF_GROUP):
            raise failure_of(error, f"reading topic {topic}")


def lanes_left(
    found: list[tuple[str, Sent]], frontier: Frontier | None, lanes: LaneOptions
) -> DestinationError | None:
    """What is in the way where lanes were changed while some were ahead of the others."""
    held = 0 if frontier is None else frontier.commit_lsn
    ahead = [
        (text, sent) for text, sent in found if text != lanes_text(lanes) and sent.commit_lsn > held
    ]
    if not ahead:
        return None
    text = ahead[0][0]
    by, _, count = text.partition("/")
    return DestinationError(
        f"destination kafka: lanes were {text} when the pipeline stopped amid a batch, and are "
        f"{lanes_text(lanes)} now: some changes would be sent twice",
        remedy=f"run the pipeline once with `lanes: {{by: {by}, count: {count}}}` until it has "
        "caught up, stop it, and change the lanes then",
    )
