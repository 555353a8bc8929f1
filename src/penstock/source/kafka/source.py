"""Topics as the source of a pipeline."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.cadence import paced
from penstock.changelog.changelog import ChangeLog
from penstock.config.kafka_source import KafkaPipelineConfig
from penstock.config.table_patterns import Rules
from penstock.model.errors import SourceError
from penstock.model.source_identity import SeenSource
from penstock.model.table_definition import TableDefinition
from penstock.model.table_name import TableName
from penstock.source.capture.child import CaptureChild
from penstock.source.contract import (
    Capture,
    CopySource,
    LeafFile,
    OnSegment,
    Reconciled,
    Source,
    SourceSession,
    Subscription,
)
from penstock.source.kafka.capture import seen_source
from penstock.source.kafka.client import Brokers, group_name
from penstock.source.kafka.identity import TopicsIdentity, claim, stored_offsets
from penstock.source.kafka.offsets import SLACK, START, Offsets, Partition, position_of
from penstock.source.kafka.topic_set import expect_same
from penstock.source.kafka.topic_tables import TopicTables
from penstock.source.postgres.pipeline_lock import KeptLock

_POSITION_SECONDS = paced(1.0)


class KafkaSource(Source):
    """Topics that a pipeline file names."""

    def __init__(self, config: KafkaPipelineConfig) -> None:
        self._config = config

    def session(
        self, purpose: str, *, supervises: bool = False
    ) -> AbstractContextManager[SourceSession]:
        return KafkaSession(self._config, purpose, supervises=supervises)

    def capture(
        self, file: Path, on_segment: OnSegment | None = None, *, stands_by: bool = False
    ) -> Capture:
        return CaptureChild(file, on_segment, stands_by=stands_by)

    def copies(self, file: Path, check: Callable[[], None]) -> CopySource:
        raise SourceError(
            "a kafka source has no tables to copy: rows that were there are in its topics",
            remedy="let the pipeline that writes the topics copy a table anew (`penstock tables "
            "resync`): its rows come as messages",
        )


class KafkaSession(SourceSession):
    """Holds the pipeline's lock in the store's database, and asks the brokers."""

    def __init__(
        self, config: KafkaPipelineConfig, purpose: str, *, supervises: bool = False
    ) -> None:
        self._config = config
        name, what = (config.name, "supervisor") if supervises else (config.delivery, "run")
        self._lock = KeptLock(config.source.url, name, f"penstock {name} {purpose}", what=what)
        self._log = ChangeLog.of(config.change_log)
        self._brokers: Brokers | None = None
        self._seen: SeenSource | None = None
        self._ends: dict[Partition, int] | None = None
        self._settled: set[Partition] = set()
        self._topic_ids: dict[str, str] = {}
        self._position = 0
        self._next_position = 0.0

    def __enter__(self) -> Self:
        self._lock.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._lock.__exit__(kind, error, trace)

    def keep(self) -> None:
        self._lock.keep()

    def seen(self) -> SeenSource:
        if self._seen is None:
            self._seen = seen_source(self._identity()[0], self.position() + SLACK)
        return self._seen

    def subscribe(self) -> Subscription:
        identity, is_new = self._identity()
        self._seen = None
        tables = self._tables().tables
        return Subscription(
            (identity.group,), identity.uuid, identity.group, START.end_lsn, tuple(tables), (),
            is_new=is_new,
        )  # fmt: skip

    def position(self) -> int:
        """Where the log will be once all that the topics hold now was read."""
        if time.monotonic() >= self._next_position:
            self._position = self._ask_position()
            self._next_position = time.monotonic() + _POSITION_SECONDS
        return self._position

    def published(self) -> Collection[int]:
        return self._tables().by_oid.keys()

    def matching(self) -> list[TableDefinition]:
        return [table.definition for table in self._tables().tables.values()]

    def definitions(self, tables: Sequence[TableName]) -> list[TableDefinition]:
        known = self._tables().tables
        return [known[name].definition for name in tables if name in known]

    def definitions_of(self, tables: Sequence[int]) -> dict[int, TableDefinition]:
        known = self._tables().by_oid
        return {oid: known[oid].definition for oid in tables if oid in known}

    def describer(self) -> Callable[[str], Mapping[int, TableDefinition]]:
        def describe(document: str) -> Mapping[int, TableDefinition]:
            table = TableDefinition.from_json(json.loads(document))
            return {table.oid: table}

        return describe

    def tables_come_in_stream(self) -> bool:
        return True

    def reconcile(self, rules: Rules) -> Reconciled:
        patterns = self._config.source.tables.patterns.with_rules(rules)
        known = self._tables().by_oid
        published = {
            oid: table.table_name
            for oid, table in known.items()
            if patterns.matches(table.schema, table.name)
        }
        return Reconciled(published, {}, {}, {}, {})

    def leaf_files(self, tables: Collection[int]) -> dict[int, dict[int, LeafFile]]:
        return {}

    def acknowledge(self, versions: Sequence[int]) -> None:
        """Whoever wrote the topics does not wait."""

    def _tables(self) -> TopicTables:
        return TopicTables.read(self._log.root)

    def _identity(self) -> tuple[TopicsIdentity, bool]:
        config = self._config
        group = group_name(config.source, config.name)
        self._log.root.make_private()
        return claim(
            self._log,
            self._asked.cluster_id(),
            group,
            config.source.format,
            config.source.transaction_topic,
        )

    def _ask_position(self) -> int:
        topics = self._asked.topics()
        places = [
            Partition(name, n) for name, topic in topics.items() for n in range(topic.partitions)
        ]
        if self._ends is None:
            # Topics that are gone count as far as they were read.
            stored = stored_offsets(self._log) or Offsets()
            self._ends = {place: state.next for place, state in stored.partitions.items()}
            self._topic_ids = stored.topic_ids
        for name, topic in topics.items():
            expect_same(self._topic_ids, name, topic)
        self._settle({place for place in self._ends if place.topic not in topics})
        self._ends |= self._asked.bounds(places)
        return position_of(sum(self._ends.values()))

    def _settle(self, deleted: set[Partition]) -> None:
        """What nobody read of a topic before it was deleted is waited for no more."""
        if self._ends is not None and deleted - self._settled:
            read = (stored_offsets(self._log) or Offsets()).partitions
            self._ends |= {place: read[place].next if place in read else 0 for place in deleted}
        self._settled = deleted

    @property
    def _asked(self) -> Brokers:
        if self._brokers is None:
            self._brokers = Brokers(self._config.source)
        return self._brokers
