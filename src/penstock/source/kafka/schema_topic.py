"""What tables look like: the topic in which Penstock announces them, or the messages themselves."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from confluent_kafka import KafkaError

from penstock.cadence import paced
from penstock.config.kafka_source import KafkaPipelineConfig
from penstock.model.errors import SourceError, SourceUnavailable
from penstock.model.lsn import Frontier
from penstock.model.table_name import TableName
from penstock.source.capture.keeper import FilledLog
from penstock.source.kafka.client import Brokers, TopicReader, failure, group_name
from penstock.source.kafka.events import Malformed
from penstock.source.kafka.log_rows import LogRows, schema_change
from penstock.source.kafka.newer_changes import headers_of
from penstock.source.kafka.offsets import Offsets, Partition, PartitionState, told_frontier
from penstock.source.kafka.penstock_format import told_table
from penstock.source.kafka.topic_set import expect_same
from penstock.source.kafka.topic_tables import ToldTable, TopicTables
from penstock.source.kafka.transcode import expect_source, note_source

_LOOK_SECONDS = paced(1.0)
_SECONDS = 30.0


class SchemaTopic:
    """The tables that are known, and what is new about them."""

    def __init__(
        self, config: KafkaPipelineConfig, filled: FilledLog, brokers: Brokers, offsets: Offsets
    ) -> None:
        self._config = config
        self._log = filled.log
        self._writer = filled.writer
        self._brokers = brokers
        self._offsets = offsets
        self._patterns = config.source.tables.patterns
        self._tables = TopicTables.read(filled.log.root)
        self._versions: set[tuple[str, bytes]] = set()
        self._news: list[ToldTable] = []
        self._learned: TopicTables | None = None

    def may_know_more(self, topic: str, version: bytes) -> bool:
        """Whether a row names a definition that was not met yet."""
        return (topic, version) not in self._versions

    def knows(self, topic: str, version: bytes) -> None:
        self._versions.add((topic, version))

    def find(self, name: TableName) -> ToldTable | None:
        """The table of that name; None where the pipeline file does not ask for it."""
        found = (self._learned or self._tables).tables.get(name)
        if found is not None:
            return found
        if not self._patterns.matches(name.schema, name.name):
            return None
        raise Malformed(
            f"nobody has told what table {name} looks like: let the pipeline that writes the topic "
            "announce its tables (destination.announce: true) and start it again, or exclude the "
            "table in source.tables"
        )

    def behind(self) -> dict[Partition, int]:
        """Partitions of the schema topic that have more than was read, and their ends. Raises
        SourceError where messages are gone that were not read.
        """
        topic = self._config.source.schema_topic
        found = None if topic is None else self._brokers.topics().get(topic)
        if topic is None or found is None:
            return {}
        expect_same(self._offsets.topic_ids, topic, found)
        self._offsets.topic_ids[topic] = found.id
        places = [Partition(topic, number) for number in range(found.partitions)]
        ends, first = self._brokers.bounds(places), self._brokers.bounds(places, first=True)
        states = self._offsets.partitions
        for place in places:
            at = states[place].next if place in states else first[place]
            if first[place] > at:
                raise SourceError(
                    f"messages of the schema topic {topic} are gone that were not read: what "
                    "tables look like is not known for sure",
                    remedy="give the topic a retention without end (retention.ms=-1), and begin "
                    "anew: `penstock destroy FILE`, then `penstock run FILE`",
                )
        return {
            place: ends[place]
            for place in places
            if ends[place] > (states[place].next if place in states else first[place])
        }

    def read(self, ends: dict[Partition, int]) -> None:
        """Read the schema topic up to there."""
        states = self._offsets.partitions
        if new := [place for place in ends if place not in states]:
            for place, at in self._brokers.bounds(new, first=True).items():
                states[place] = PartitionState(at)
        if ends:
            self._drain(ends)

    def _drain(self, ends: dict[Partition, int]) -> None:
        config = self._config
        reader = TopicReader(config.source, group_name(config.source, config.name))
        states, deadline = self._offsets.partitions, time.monotonic() + _SECONDS
        try:
            reader.add({place: states[place].next for place in ends}, self._offsets.epochs())
            while any(states[place].next < end for place, end in ends.items()):
                for message in reader.take(1000, 0.2):
                    self._take(message)
                if time.monotonic() > deadline:
                    raise SourceUnavailable(
                        f"source kafka: the schema topic {config.source.schema_topic} did not "
                        f"answer within {_SECONDS:g} s",
                        remedy="see whether the brokers run and can be reached",
                    )
        finally:
            reader.close()

    def add(self, table: ToldTable) -> None:
        """What a row has told of its table."""
        self._news.append(table)

    def learn(self, table: ToldTable) -> None:
        """The same of a row that stands among others which are taken together: others are read by
        it at once, and the log is told with the next ``take``. Raises SourceError.
        """
        before = self._learned or replace(self._tables, changed=())
        after = before.told([table], 0)
        changed = tuple(dict.fromkeys((*before.changed, *after.changed)))
        self._learned = replace(after, changed=changed)

    @property
    def has_learned(self) -> bool:
        return self._learned is not None

    def _take(self, message: Any) -> None:
        place = Partition(message.topic(), message.partition())
        state, error = self._offsets.partitions[place], message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                state.pass_marks(message.offset() or 0)
            elif not error.retriable():
                raise failure(error, f"reading {place}")
            return
        state.next, state.epoch = message.offset() + 1, message.leader_epoch()
        headers = headers_of(message)
        try:
            expect_source(place, self._offsets, headers)
            table = told_table(message.value() or b"")
        except Malformed as wrong:
            # Whatever is left out here may change what rows mean: nobody may go on.
            raise SourceError(
                f"the message at offset {message.offset()} of the schema topic {place} is "
                f"malformed: {wrong.message}",
                remedy="see who writes to the topic, and let only the pipeline do so; then begin "
                "anew with a topic that only it has written to",
            ) from None
        note_source(state, headers, message.offset())
        if table is not None and self._patterns.matches(table.schema, table.name):
            if not table.primary_key:
                raise SourceError(
                    f"table {table.table_name} has no primary key: a message that comes again "
                    "could not be told from another row",
                    remedy="give the table a primary key, or exclude it in source.tables",
                )
            self._news.append(table)

    def take(self, rows: LogRows, held: Frontier) -> int | None:
        """Add what is new to ``rows``, to be published with the offsets of now, and make it known
        durably before; the position at which it stands, None where nothing has changed. ``held`` is
        how far the log is.
        """
        news, self._news = self._news, []
        lsn = told_frontier(self._offsets.total).commit_lsn
        before, learned = self._tables, self._learned
        after = self._tables.told(news, lsn) if learned is None else learned
        self._learned = None
        untold = before.changed if before.lsn > held.commit_lsn else ()
        oids = tuple(dict.fromkeys((*untold, *after.changed)))
        if not oids:
            return None
        self._tables = TopicTables(after.tables, lsn, oids)
        # Whoever captures instead of us has written tables that are newer than these.
        self._writer.expect_ours()
        self._tables.write(self._log.root)
        tables = [self._tables.by_oid[oid] for oid in oids]
        rows.add(schema_change(tables, "TOLD BY TOPICS"), [], int(time.time() * 1_000_000))
        return lsn
