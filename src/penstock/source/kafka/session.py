"""One session of capture: from the offsets that the log holds to its end, for whatever reason."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError

from penstock.cadence import paced
from penstock.changelog.segment import without_rows
from penstock.config.kafka_source import KafkaPipelineConfig
from penstock.failpoints import failpoint
from penstock.model.lsn import Frontier
from penstock.source.capture.keeper import FilledLog, Limits, LogKeeper
from penstock.source.capture.stop import Stop
from penstock.source.kafka.assembling import HeldMessage, Release
from penstock.source.kafka.capture_report import report_of
from penstock.source.kafka.client import Brokers, TopicReader, failure
from penstock.source.kafka.debezium_format import Untold
from penstock.source.kafka.events import (
    Event,
    Headers,
    Malformed,
    MessageFormat,
    RowEvent,
    ToldTruncate,
    header_position,
)
from penstock.source.kafka.formats import message_format
from penstock.source.kafka.identity import TopicsIdentity
from penstock.source.kafka.left_out import LeftOut
from penstock.source.kafka.log_rows import LogRows
from penstock.source.kafka.newer_changes import NewerChanges, Stopped, headers_of
from penstock.source.kafka.offsets import (
    Offsets,
    Partition,
    PartitionState,
    SourcePosition,
    frontier_of,
    position_of,
    told_frontier,
)
from penstock.source.kafka.schema_topic import SchemaTopic
from penstock.source.kafka.topic_set import TopicSet
from penstock.source.kafka.transcode import (
    Counts,
    Transcoder,
    expect_order_of_rows,
    expect_source,
    note_source,
)
from penstock.source.kafka.whole_transactions import WholeTransactions, is_end, learned

_BATCH = 2_000
_PATIENCE_SECONDS = 0.1
_BESIDE_SECONDS = paced(1.0)
_TOPICS_SECONDS = paced(5.0)
_READS_SECONDS = 60.0


@dataclass(frozen=True)
class TopicAccess:
    """How topics are read: the cluster, a consumer there, and as whom it commits."""

    brokers: Brokers
    reader: TopicReader
    identity: TopicsIdentity


class TopicSession:
    """Reads topics into the log. Each segment holds the offsets that it brings the log to."""

    def __init__(
        self,
        config: KafkaPipelineConfig,
        filled: FilledLog,
        access: TopicAccess,
        offsets: Offsets | None,
        stop: Stop,
    ) -> None:
        self._config = config
        self._log = filled.log
        self._writer = filled.writer
        self._link = filled.link
        self._reader = access.reader
        self._stop = stop
        self._identity = access.identity
        self._offsets = offsets or Offsets()
        self._topics = TopicSet(config.source, access.brokers, self._offsets)
        self._format: MessageFormat = message_format(config.source.format)
        self._counts = Counts()
        self._left_out = LeftOut(config.source, self._topics, self._counts)
        self._newer = NewerChanges(self._read_again)
        self._offset = 0
        self._transcoder = Transcoder(self._is_stale, self._counts)
        self._schema = SchemaTopic(config, filled, access.brokers, self._offsets)
        self._known: dict[tuple[Partition, int], Event | None] = {}
        self._whole: WholeTransactions | None = None
        self._is_inside = False
        if config.source.transaction_topic is not None:
            self._whole = WholeTransactions(
                config.source, self._offsets, self._topics, self._counts, self._left_out
            )
        change_log = config.change_log
        self._keeper = LogKeeper(
            filled, Limits(change_log.max_bytes, change_log.grace), self._report
        )
        self._oldest: float | None = None
        self._next_beside = self._next_topics = 0.0
        self._last_read = self._last_advance = time.monotonic()
        self._published = self._changes = 0
        self._started = time.time()

    def run(self, check_lock: Callable[[], object]) -> None:
        """Until it is told to stop; then publish what was read."""
        with self._keeper:
            self._look_at_topics()
            self._follow_schema(again=True)
            with suppress(Stopped):
                while not self._stop():
                    self._turn(check_lock)
            self._publish()
        self._keeper.look(now=True)
        self._link.report(self._log, self._keeper.report("stopped"))

    def _turn(self, check_lock: Callable[[], object]) -> None:
        now = time.monotonic()
        if now >= self._next_beside:
            self._next_beside = now + _BESIDE_SECONDS
            check_lock()
            self._keeper.check()
            if now - self._last_read > _READS_SECONDS:
                self._newer.forget()
        if now >= self._next_topics:
            self._follow_schema()
            self._look_at_topics()
        full = self._keeper.is_paused = self._keeper.is_full()
        if full:
            self._stop.wait(_PATIENCE_SECONDS)
            return
        if self._whole is not None:
            self._take_releases(self._whole, self._whole.look(self._reader.only))
        for message in self._reader.take(_BATCH, _PATIENCE_SECONDS):
            error = message.error()
            if self._whole is None or (error is not None and not is_end(error)):
                self._take(message)
                self._publish_if_large()
                continue
            self._take_releases(self._whole, self._whole.arrive(message))
        self._publish_if_due()

    # -- messages --------------------------------------------------------------------------------

    def _take(self, message: Any) -> None:
        place = Partition(message.topic(), message.partition())
        error = message.error()
        if error is not None:
            self._heed(place, error, message.offset())
            return
        state, offset = self._offsets.partitions[place], message.offset()
        if offset < state.next:
            return
        failpoint("capture.received")
        self._offset = offset
        self._counts.messages += 1
        self._counts.bytes += len(message.value() or b"")
        try:
            headers = headers_of(message)
            expect_source(place, self._offsets, headers)
            event = self._read(place, message, headers)
            note_source(state, headers, offset)
            if event is not None:
                self._expect_order(place, state, event)
            self._newer.note(place, message.key(), header_position(headers))
            if event is None:
                self._counts.not_followed += 1
            elif not self._left_out.is_out(place, offset, event):
                if isinstance(event, RowEvent) and event.op == "read":
                    self._last_read = time.monotonic()
                kind, millis = message.timestamp()
                micros = millis * 1000 if kind else 0
                self._transcoder.take(place, state, event, message.key(), micros)
        except (Malformed, ValueError) as wrong:
            self._left_out.malformed(place, offset, wrong)
        state.next, state.epoch = offset + 1, message.leader_epoch()
        if self._oldest is None:
            self._oldest = time.monotonic()

    def _take_releases(self, whole: WholeTransactions, releases: Iterator[Release[Any]]) -> None:
        for release in releases:
            self._take_release(release, whole.boundaries)
            self._publish_if_large()

    def _take_release(self, release: Release[Any], boundaries: Partition) -> None:
        """A message, or all of a transaction: nothing is published in between."""
        end = release.end
        if end is not None:
            # No schema change stands between its rows.
            self._known = learned(release, self._format, self._schema)
            if self._schema.has_learned:
                self._known.clear()
                self._follow_schema(again=True)
            self._end_transaction()
            self._is_inside = True
        for entry in release.entries:
            if entry.message is None:
                self._pass(entry)
            else:
                self._take(entry.message)
            if entry.mark is not None:
                self._offsets.partitions[entry.place].top = SourcePosition(*entry.mark.position)
        if end is not None and end.end is not None:
            self._pass(end)
            state = self._offsets.partitions[boundaries]
            state.ended = state.ended.then(end.end.xid, end.end.lsn, end.end.millis)
            self._end_transaction()
            self._is_inside = False

    def _end_transaction(self) -> None:
        self._transcoder.rows.end_transaction(frontier_of(self._offsets.total).commit_lsn)

    def _pass(self, entry: HeldMessage[Any]) -> None:
        """Go on behind a message that says nothing more."""
        self._counts.messages += 1
        state = self._offsets.partitions[entry.place]
        state.next, state.epoch = entry.offset + 1, entry.epoch
        if self._oldest is None:
            self._oldest = time.monotonic()

    def _expect_order(self, place: Partition, state: PartitionState, event: Event) -> None:
        """Raises SourceError for a message that stands in no order with others of its row."""
        if event.lane not in state.lanes:
            expect_order_of_rows(place, event.lane, self._topics.partitions(place.topic))
        tables = event.tables if isinstance(event, ToldTruncate) else (event.table,)
        for table in tables:
            if self._offsets.topic_of.get(table.oid) != place.topic:
                self._topics.expect_topic_of(table, place, self._offset)

    def _read(self, place: Partition, message: Any, headers: Headers) -> Event | None:
        """Before a row is read, what its table looks like since is read."""
        if (place, message.offset()) in self._known:
            return self._known.pop((place, message.offset()))
        version = headers.get("penstock.schema_version", b"")
        if self._schema.may_know_more(place.topic, version):
            self._follow_schema()
            self._schema.knows(place.topic, version)
        find = self._schema.find
        try:
            return self._format.read(message.key(), message.value(), headers, find)
        except Untold as told:
            self._schema.add(told.table)
            self._follow_schema(again=True)
        except Malformed:
            # It may have been told meanwhile.
            if not self._follow_schema():
                raise
        return self._format.read(message.key(), message.value(), headers, find)

    def _heed(self, place: Partition, error: KafkaError, offset: int | None) -> None:
        code = error.code()
        state = self._offsets.partitions[place]
        if code == KafkaError._PARTITION_EOF:
            state.pass_marks(offset or 0)
            return
        if code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            raise self._topics.gone(place, state.next)
        if code in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC):
            self._next_topics = 0.0
            return
        if code == KafkaError._MAX_POLL_EXCEEDED or error.retriable():
            return
        raise failure(error, f"reading {place}")

    def _is_stale(self, place: Partition, event: RowEvent, key: bytes) -> bool:
        return self._newer.is_stale(place, event, key, self._offset)

    def _read_again(
        self, place: Partition, upto: int
    ) -> Iterator[tuple[bytes | None, dict[str, bytes]]]:
        first = self._topics.first(place)
        reader = TopicReader(self._config.source, self._identity.group)
        try:
            reader.add({place: first})
            while True:
                if self._stop():
                    raise Stopped
                for message in reader.take(_BATCH, _PATIENCE_SECONDS):
                    if message.error() is not None:
                        if message.error().code() == KafkaError._PARTITION_EOF:
                            return
                        self._heed(place, message.error(), None)
                    elif message.offset() >= upto:
                        return
                    else:
                        yield message.key(), headers_of(message)
        finally:
            reader.close()

    # -- topics and tables -----------------------------------------------------------------------

    def _look_at_topics(self) -> None:
        """New topics and partitions begin once the others are read up to where they ended when the
        new ones were found: a key may have moved to another partition.
        """
        self._next_topics = time.monotonic() + _TOPICS_SECONDS
        places = self._topics.look(is_first=not self._published)
        self._reader.add(places, self._offsets.epochs())

    def _follow_schema(self, *, again: bool = False) -> bool:
        """Tell the log of tables that are new or have changed, once all readers of the log have
        taken what was told before; True where something was told.
        """
        if self._is_inside:
            return False
        behind = self._schema.behind()
        if not behind and not again:
            return False
        # What was read before stands before it.
        self._publish()
        self._schema.read(behind)
        rows = LogRows()
        lsn = self._schema.take(rows, self._writer.frontier or Frontier(0, 0))
        if lsn is None:
            return False
        self._write(rows, told_frontier(self._offsets.total))
        self._until_taken(lsn)
        return True

    def _until_taken(self, lsn: int) -> None:
        """Nothing comes behind a schema change before it is followed: by all tables but those that
        were set aside, which nobody waits for.
        """
        while not self._stop() and (passed := self._keeper.readers.stream) is not None:
            self._keeper.check()
            if passed.commit_lsn >= lsn:
                return
            self._stop.wait(_PATIENCE_SECONDS)

    # -- segments --------------------------------------------------------------------------------

    def _publish_if_large(self) -> None:
        if self._transcoder.rows.size >= self._config.change_log.segment_bytes:
            self._publish()

    def _publish_if_due(self) -> None:
        now, age = time.monotonic(), self._config.change_log.segment_age
        if self._oldest is not None and now - self._oldest >= age:
            self._publish()
        elif self._oldest is None:
            self._advance_idle(now)

    def _publish(self) -> None:
        """Make what was read durable, together with the offsets, then tell the group."""
        rows, self._oldest = self._transcoder.cut(), None
        frontier = rows.last_frontier(frontier_of(self._offsets.total))
        if rows:
            self._write(rows, frontier)
        else:
            self._advance(frontier.end_lsn)

    def _advance_idle(self, now: float) -> None:
        """Say now and then how far the topics were read, where they held nothing for us."""
        held = self._writer.frontier or Frontier(0, 0)
        end = position_of(self._offsets.total)
        wanted = held.end_lsn < self._keeper.readers.wanted_lsn <= end
        if wanted or now - self._last_advance >= self._log.segments.pace.advance:
            self._advance(end)

    def _advance(self, end: int) -> None:
        held = self._writer.frontier or Frontier(0, 0)
        if end > held.end_lsn:
            self._last_advance = time.monotonic()
            self._publish_segment(without_rows(self._offsets.to_json()), Frontier(held[0], end))

    def _write(self, rows: LogRows, frontier: Frontier) -> None:
        tables = {table.oid: table for table in self._log.tables()}
        if any(tables.get(oid) != table for oid, table in rows.tables.items()):
            # Before the rows: whoever sees a row may ask what its table looks like.
            self._log.set_tables(tables | rows.tables)
        segment = rows.segment(frontier, self._offsets.to_json())
        self._publish_segment(segment, frontier, has_schema_changes=rows.has_schema_changes)
        self._changes += len(rows)

    def _publish_segment(
        self, segment: Any, frontier: Frontier, *, has_schema_changes: bool = False
    ) -> None:
        failpoint("capture.before_publish")
        name = self._writer.publish(
            segment, frontier, is_open=False, has_schema_changes=has_schema_changes
        )
        self._link.published(str(name), self._writer.size_of(name))
        self._published += 1
        failpoint("capture.published")
        failpoint("capture.before_confirm")
        # Only now: the log is the truth, the group is for those who watch lags.
        self._reader.commit(
            {place: state.next for place, state in self._offsets.partitions.items()},
            self._identity.tag,
        )

    def _report(self) -> dict[str, Any]:
        """How things are. Called by the keeper's thread."""
        whole, size = self._whole, self._transcoder.rows.size
        return {
            **report_of(self._counts, self._writer.frontier, self._offsets),
            "started_at": self._started,
            "buffered_bytes": size + (whole.size if whole else 0),
            "transactions": self._published,
            "changes": self._changes,
        } | ({"waits": whole.waits} if whole and whole.waits else {})
