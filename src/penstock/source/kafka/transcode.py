"""Events of partitions → rows of the log: repeated messages left out, stale rows left out. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from penstock.model.errors import IdentityChanged, SourceError
from penstock.source.kafka import log_rows
from penstock.source.kafka.events import (
    READ_ORDINAL,
    Event,
    Headers,
    Malformed,
    RowEvent,
    ToldTruncate,
    header_source,
)
from penstock.source.kafka.log_rows import LogRows
from penstock.source.kafka.offsets import Offsets, Partition, PartitionState, SourcePosition

IsStale = Callable[[Partition, RowEvent, bytes], bool]
"""Whether a newer change of the same row stands before a row that was copied."""

_OTHER_TOPICS = (
    "A pipeline that begins anew needs topics without messages of the old one. Stop both "
    "pipelines, delete the topics with the schema topic (or name others at both), and let the "
    "writer begin anew: `penstock destroy` and `penstock run` with its file, which copies its "
    "tables into them. Then begin this pipeline anew: `penstock destroy FILE`, empty its tables at "
    "the destination, `penstock run FILE`."
)

KEEPS_TABLES = ("table", "schema")
"""Divisions into lanes that keep the changes of a table together."""


@dataclass
class Counts:
    """What became of messages. ``repeated``: sent again by their writer. ``stale``: rows that were
    copied, of which a newer change came first. ``not_followed``: of tables that nobody asks for,
    and messages that tell of no row.
    """

    messages: int = 0
    bytes: int = 0
    repeated: int = 0
    stale: int = 0
    not_followed: int = 0
    malformed: int = 0
    by_topic: dict[str, int] = field(default_factory=dict)
    """Those that are malformed, by topic."""


def lane_group(lane: str) -> str:
    """``3/4 key`` is lane 3 of four, by key: lanes of another division mean nothing beside it."""
    return lane.partition("/")[2]


def keeps_order(lane: str, others: bool) -> bool:
    """Whether a TRUNCATE of this lane stands in order with all rows of its table; ``others``:
    whether other partitions of its topic have messages.
    """
    count, _, by = lane_group(lane).partition(" ")
    return not others and (not lane or by in KEEPS_TABLES or count == "1")


def expect_source(place: Partition, offsets: Offsets, headers: Headers) -> None:
    """Raises IdentityChanged for a message of another source than those before it, in its partition
    or any other: positions of the one mean nothing in the other, and its changes would pass for
    sent before. Raises Malformed for one that does not say what the others do. Writers of older
    versions say nothing.
    """
    state, found = offsets.partitions[place], header_source(headers)
    if found == state.source:
        return
    if not found:
        raise Malformed(
            "it does not say of which source it is (header penstock.lane), and those before it do, "
            f"from offset {state.source_at} on"
        )
    others = (place,) if state.source else tuple(offsets.partitions)
    known = {offsets.partitions[other].source: other for other in others}
    known.pop("", None)
    if known and found not in known:
        source, other = next(iter(known.items()))
        raise IdentityChanged(
            f"Messages of {place} are of another source from here on ({found[:40]} instead of "
            f"{source}, which the one at offset {offsets.partitions[other].source_at} of {other} "
            "was the first to name): the pipeline that writes the topic has begun anew, perhaps on "
            "another server, or a second one writes to topics that source.topics names. Positions "
            "of the one mean nothing in the other, and no message tells which rows are gone since.",
            remedy=_OTHER_TOPICS,
        )


def expect_order_of_rows(place: Partition, lane: str, partitions: int) -> None:
    """Raises SourceError where changes of one row stand in several lanes."""
    count, _, by = lane_group(lane).partition(" ")
    if by != "transaction" or (count == "1" and partitions == 1):
        return
    raise SourceError(
        f"Messages of {place} are divided by transactions ({count} lanes, {partitions} "
        "partitions): changes of one row stand in no order",
        remedy="let the pipeline that writes the topics keep rows together (destination.lanes: "
        "{by: key}), or write one lane into topics of one partition; then begin anew with topics "
        "without the old messages",
    )


def note_source(state: PartitionState, headers: Headers, offset: int) -> None:
    """Called once a message was read: what is none says nothing about those behind it."""
    if (found := header_source(headers)) != state.source:
        state.source, state.source_at = found, offset


class Transcoder:
    """Takes events in the order of their partitions."""

    def __init__(self, is_stale: IsStale, counts: Counts) -> None:
        self._is_stale = is_stale
        self._counts = counts
        self.rows = LogRows()

    def cut(self) -> LogRows:
        """What was taken since the last time."""
        rows, self.rows = self.rows, LogRows()
        return rows

    def take(
        self, place: Partition, state: PartitionState, event: Event, key: bytes | None, micros: int
    ) -> None:
        """``micros`` is the message's own time, for those that tell no other."""
        at = event.position
        micros = event.commit_micros or micros
        if isinstance(event, ToldTruncate):
            if self._is_new(state, at, event.lane):
                if at is not None:
                    state.truncated |= {table.oid: at.commit_lsn for table in event.tables}
                self.rows.add(log_rows.truncate(event), event.tables, micros)
            return
        if event.op == "read":
            self._read(place, state, event, key, micros)
            return
        # Before the lanes are told of it.
        is_first = _is_first(state, at, event.lane)
        if not self._is_new(state, at, event.lane):
            return
        if event.op == "delete":
            payload = log_rows.delete(event)
        elif event.op == "insert" and is_first and not event.unset:
            payload = log_rows.insert(event)
        else:
            payload = log_rows.update(event, event.old_key if event.unset else None)
        self.rows.add(payload, [event.table], micros)

    def _read(
        self,
        place: Partition,
        state: PartitionState,
        event: RowEvent,
        key: bytes | None,
        micros: int,
    ) -> None:
        """A row that was there comes as an update: it may come again, and over what is there."""
        at = event.position
        if at is not None:
            state.copied = max(state.copied, at.commit_lsn)
            if state.truncated.get(event.table.oid, 0) > at.commit_lsn:
                self._counts.stale += 1
                return
        if at is not None and state.top is not None and state.top.commit_lsn > at.commit_lsn:
            if key is None:
                raise Malformed("it is a row that was copied, and has no key")
            if self._is_stale(place, event, key):
                self._counts.stale += 1
                return
        self.rows.add(log_rows.update(event, None), [event.table], micros)

    def _is_new(self, state: PartitionState, at: SourcePosition | None, lane: str) -> bool:
        """Whether the change did not come before; notes that it has come now."""
        if at is None:
            return True
        if lane:
            known = state.lanes.get(lane)
            if known is not None and at <= known:
                self._counts.repeated += 1
                return False
            if lane not in state.lanes:
                _forget_others(state, lane)
            state.lanes[lane] = at
        if at.ordinal != READ_ORDINAL and (state.top is None or at > state.top):
            state.top = at
        return True


def _is_first(state: PartitionState, at: SourcePosition | None, lane: str) -> bool:
    """Whether nothing of the row can have come before from an earlier try of the writer: then an
    insert is one, and no update of a row that is there already.
    """
    if at is None or not lane or at.commit_lsn <= state.copied:
        return False
    groups = {lane_group(each) for each in state.lanes}
    return groups == {lane_group(lane)} or state.top is None or at > state.top


def _forget_others(state: PartitionState, lane: str) -> None:
    """Lanes of another division: what they brought is beyond comparison."""
    group = lane_group(lane)
    for other in [each for each in state.lanes if lane_group(each) != group]:
        del state.lanes[other]
