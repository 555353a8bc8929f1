"""Where a reader of topics stands, and the position in the log that this makes. Pure.

The position is made of a sum: of the next offsets of all partitions that were ever read. It rises
with every message, is the same after a restart, and the driver can tell from the partitions' ends
what it will be when everything was read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from penstock.model.lsn import Frontier

# A message takes this much of the log's positions. Commits of rows begin in the middle and end
# where the next message begins; what is told of tables before that message comes first in it.
_UNIT = 64
_TOLD_BEGINS, _TOLD_ENDS = 8, 16
_RECENT_ENDS = 64


class Partition(NamedTuple):
    """A partition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}[{self.partition}]"


class SourcePosition(NamedTuple):
    """Where a change stood in the database that the topics were made from, and which of its
    messages it is.
    """

    commit_lsn: int
    ordinal: int
    part: int = 0


def position_of(total: int) -> int:
    """The log's position once so many messages were read, counted by offsets."""
    return _UNIT * (total + 1)


def frontier_of(total: int) -> Frontier:
    """Where the log ends with a transaction that ends there."""
    end = position_of(total)
    return Frontier(end - _UNIT // 2, end)


def told_frontier(total: int) -> Frontier:
    """Where the log ends with a schema change that stands before the next message."""
    end = position_of(total)
    return Frontier(end + _TOLD_BEGINS, end + _TOLD_ENDS)


SLACK = _TOLD_ENDS
"""How far a log may end behind the position of all that was read."""


START = Frontier(0, position_of(0))
"""Where every log of topics begins: nothing was read."""


class Ended(NamedTuple):
    """The last transaction that was put together: its number, where its commit ends, and the time
    of the last commit so far. ``recent`` is where some of those before it ended, without a gap.
    """

    xid: int = 0
    lsn: int = 0
    millis: int = 0
    recent: tuple[int, ...] = ()

    def then(self, xid: int, lsn: int, millis: int) -> Ended:
        recent = (*self.recent, self.lsn)[-_RECENT_ENDS:]
        return Ended(xid, lsn, max(millis, self.millis), recent)

    def lacks(self, lsn: int) -> bool:
        """Whether none ended there, though others did before and behind it."""
        is_between = bool(self.recent) and self.recent[0] < lsn < self.lsn
        return is_between and lsn not in self.recent


NOT_ENDED = Ended()


@dataclass
class PartitionState:
    """``next`` is the offset to go on with. ``lanes`` is the greatest position of changes that each
    lane of the writer has brought here, by the lane's name; ``top`` the greatest of all of them (of
    marked rows the commit before their transaction, their number there and its own),
    and ``copied`` the greatest point of a snapshot that copied rows here are of. ``source`` is what
    the writer says all these positions are of, and ``source_at`` the offset of the first message
    that said so; empty where it says nothing. ``truncated`` is the commit LSN of the last TRUNCATE
    of each table, by its number. ``epoch`` is the leader's when it wrote the message before
    ``next``; None where that is not known. ``ended`` is of the partition with Debezium's BEGIN and
    END.
    """

    next: int
    lanes: dict[str, SourcePosition] = field(default_factory=dict)
    top: SourcePosition | None = None
    copied: int = 0
    source: str = ""
    source_at: int = 0
    truncated: dict[int, int] = field(default_factory=dict)
    epoch: int | None = None
    ended: Ended = NOT_ENDED

    def pass_marks(self, end: int) -> None:
        """Go on at the partition's end: behind the last message stand marks of transactions."""
        if end > self.next:
            self.next, self.epoch = end, None

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {"next": self.next}
        if self.lanes:
            value["lanes"] = self.lanes
        if self.top is not None:
            value["top"] = self.top
        if self.copied:
            value["copied"] = self.copied
        if self.source:
            value |= {"source": self.source, "source_at": self.source_at}
        if self.truncated:
            value["truncated"] = self.truncated
        if self.epoch is not None:
            value["epoch"] = self.epoch
        if self.ended.lsn:
            value |= {"ended": self.ended[:3], "ended_before": self.ended.recent}
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> PartitionState:
        top = value.get("top")
        return cls(
            value["next"],
            {name: SourcePosition(*at) for name, at in value.get("lanes", {}).items()},
            None if top is None else SourcePosition(*top),
            value.get("copied", 0),
            value.get("source", ""),
            value.get("source_at", 0),
            {int(table): lsn for table, lsn in value.get("truncated", {}).items()},
            value.get("epoch"),
            Ended(*value.get("ended", ()))._replace(recent=tuple(value.get("ended_before", ()))),
        )


@dataclass
class Offsets:
    """All partitions that were ever read, also of topics that are gone, and the topics' ids.
    ``topic_of`` says in which topic the messages of each table stand, by its number.
    """

    partitions: dict[Partition, PartitionState] = field(default_factory=dict)
    topic_ids: dict[str, str] = field(default_factory=dict)
    topic_of: dict[int, str] = field(default_factory=dict)

    def epochs(self) -> dict[Partition, int]:
        """Of the partitions where it is known."""
        return {p: s.epoch for p, s in self.partitions.items() if s.epoch is not None}

    @property
    def total(self) -> int:
        return sum(state.next for state in self.partitions.values())

    def to_json(self) -> str:
        topics: dict[str, dict[str, Any]] = {}
        for (topic, partition), state in sorted(self.partitions.items()):
            found = topics.setdefault(topic, {"id": self.topic_ids.get(topic, ""), "at": {}})
            found["at"][str(partition)] = state.to_json()
        for table, topic in sorted(self.topic_of.items()):
            if topic in topics:
                topics[topic].setdefault("tables", []).append(table)
        return json.dumps({"topics": topics}, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Offsets:
        found = json.loads(text)["topics"]
        return cls(
            {
                Partition(topic, int(partition)): PartitionState.from_json(state)
                for topic, value in found.items()
                for partition, state in value["at"].items()
            },
            {topic: value["id"] for topic, value in found.items()},
            {table: topic for topic, value in found.items() for table in value.get("tables", ())},
        )
