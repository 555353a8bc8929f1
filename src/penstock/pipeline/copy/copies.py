"""A copy manager with everything that it needs: the source, Spark, the holders of snapshots."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.changelog.changelog import ChangeLog
from penstock.config.models import CopyConfig, PipelineConfig
from penstock.destination.contract import Destination
from penstock.metrics.pipeline_metrics import Metrics
from penstock.metrics.written import CopyResult
from penstock.model.errors import TableRefused, TableRewritten
from penstock.model.lsn import Frontier
from penstock.model.table_definition import TableDefinition
from penstock.model.table_rows import TableRows
from penstock.pipeline.copy.copy_manager import CopyManager
from penstock.pipeline.copy.copy_queue import CopyUnit
from penstock.pipeline.copy.copy_state import Positions
from penstock.pipeline.copy.copy_target import CopyTarget
from penstock.pipeline.copy.finish_copies import FinishAtOnce, FinishCopies, ReadKeys
from penstock.pipeline.copy.held_snapshots import HeldSnapshots
from penstock.pipeline.copy.held_wal import HeldWal
from penstock.pipeline.copy.replay import Replay
from penstock.pipeline.run.batch_committer import BatchCommitter
from penstock.pipeline.run.filtering import pipeline_filter
from penstock.pipeline.run.joins import Joins
from penstock.pipeline.tables.followed_tables import FollowedTables
from penstock.source.postgres.catalogue.definitions import read_definitions_by_oid
from penstock.source.postgres.connect import connect
from penstock.source.postgres.snapshot.chunk import CopyPlan
from penstock.source.postgres.snapshot.held_snapshot import HeldSnapshot
from penstock.source.postgres.snapshot.keys import read_keys
from penstock.source.postgres.snapshot.plan import plan_copy
from penstock.source.postgres.snapshot.relations import CopySource, read_relations
from penstock.source.postgres.snapshot.slot_snapshot import slot_snapshot
from penstock.source.postgres.subscription.subscription import SLOT_WAIT_SECONDS, find_subscription
from penstock.store import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def make_copies(
    config: PipelineConfig,
    file: Path,
    spark: SparkSession,
    destination: Destination,
    store: Store,
    tables: FollowedTables,
    committer: BatchCommitter,
    log: ChangeLog,
    joins: Callable[[], Joins | None],
    say: Callable[[str], None],
    metrics: Metrics,
) -> CopyManager:
    """For a pipeline with a stream, beside which tables are copied."""
    from penstock.spark.jobs import run_replay

    source = _Source(config, spark, destination, store, say)
    batch = config.batch
    replay = Replay(
        source.target,
        committer,
        log,
        batch.max_bytes,
        partial(
            run_replay,
            spark,
            config.change_log.path,
            batch.buffer_bytes,
            source.filter,
        ),
        source.check,
    )
    finish = FinishCopies(
        source.target,
        store,
        committer,
        replay,
        source.snapshot_of_now,
        tables,
        joins,
        source.check,
    )
    return source.manager(file, tables, committer, finish, say, metrics, one_snapshot=False)


def make_copies_only(
    config: PipelineConfig,
    file: Path,
    spark: SparkSession,
    destination: Destination,
    store: Store,
    tables: FollowedTables,
    positions: Positions,
    say: Callable[[str], None],
) -> CopyManager:
    """For copies at one point, with no stream."""
    source = _Source(config, spark, destination, store, say)
    finish = FinishAtOnce(source.target, store, tables.refuse)
    metrics = Metrics(config.name)
    return source.manager(file, tables, positions, finish, say, metrics, one_snapshot=True)


class _Source:
    """The source's side of copies."""

    def __init__(
        self,
        config: PipelineConfig,
        spark: SparkSession,
        destination: Destination,
        store: Store,
        say: Callable[[str], None],
    ) -> None:
        self._config = config
        self.filter = pipeline_filter(config)
        self._copy = config.source.copy_rows or CopyConfig()
        self._spark = spark
        self.target = CopyTarget(destination)
        self._store = store
        self._say = say
        self._application = f"penstock {config.name} copy"
        self._sources: dict[int, CopySource] = {}
        self._lock = threading.Lock()
        self._manager: CopyManager | None = None

    def manager(
        self,
        file: Path,
        tables: FollowedTables,
        positions: Positions,
        finish: FinishCopies | FinishAtOnce,
        say: Callable[[str], None],
        metrics: Metrics,
        *,
        one_snapshot: bool,
    ) -> CopyManager:
        config, copy = self._config, self._copy
        slots = self._spark.sparkContext.defaultParallelism
        self._manager = CopyManager(
            self.target,
            self._store,
            tables,
            positions,
            HeldSnapshots(config, file, max_age=copy.max_snapshot_age, check=self.check, say=say),
            self.define,
            self.plans,
            self.copy_unit,
            finish,
            parallelism=copy.parallelism or slots,
            leaves_room=copy.parallelism is None and not one_snapshot,
            unit_bytes=copy.chunk_bytes,
            worker=str(uuid.uuid4()),
            one_snapshot=one_snapshot,
            over_budget=HeldWal(config, copy.max_wal).over_budget,
            pause_over_budget=copy.on_max_wal == "pause",
            say=say,
            metrics=metrics,
        )
        return self._manager

    def check(self) -> None:
        """Ends what takes long when the pipeline ends."""
        if self._manager is not None:
            self._manager.check_stopping()

    def define(self, tables: Collection[int]) -> dict[int, TableDefinition]:
        """What tables are like now."""
        with connect(self._config.source.url, application_name=self._application) as conn:
            subscription = find_subscription(conn, self._config.name)
            publications = subscription.publications if subscription else ()
            return read_definitions_by_oid(conn, list(tables), publications)

    def plans(self, tables: Sequence[TableDefinition]) -> dict[int, CopyPlan | TableRefused]:
        """What to read of each table, or why it is not copied. Those that are gone, or are not
        like this any more, are left out."""
        found: dict[int, CopyPlan | TableRefused] = {}
        there = self._read(tables, found)
        for table in tables:
            if table.oid in found or table.oid not in there:
                continue
            if self._copy.existing_rows == "refuse" and self.target.has_foreign_rows(table):
                found[table.oid] = _not_empty(table)
            else:
                found[table.oid] = plan_copy(self._sources[table.oid], self._copy.chunk_bytes)
        return found

    def _read(
        self, tables: Sequence[TableDefinition], refused: dict[int, CopyPlan | TableRefused]
    ) -> Collection[int]:
        with connect(self._config.source.url, application_name=self._application) as conn:
            subscription = find_subscription(conn, self._config.name)
            publications = subscription.publications if subscription else ()
            sources = read_relations(conn, tables, publications, self._copy.where)
        for oid, error in sources.refused.items():
            refused[oid] = TableRefused(error.message, remedy=error.remedy, table=oid)
        with self._lock:
            self._sources |= sources.found
        return sources.found.keys()

    def copy_unit(
        self,
        unit: CopyUnit,
        snapshot: HeldSnapshot,
        plans: Mapping[int, CopyPlan],
        again: Collection[int],
    ) -> CopyResult:
        """Copy the chunks of a unit in one Spark task."""
        from penstock.spark.jobs import TableToCopy, run_copy

        schemas = self._store.get_table_schemas()
        self._read_missing([schemas[oid] for oid in unit.tables])
        tables = {
            oid: TableToCopy(
                self._source(schemas[oid]).table,
                plans[oid].where,
                self.target.copies.chunk_writer(schemas[oid], again=oid in again),
            )
            for oid in unit.tables
        }
        point = Frontier.before(snapshot.lsn)
        return run_copy(
            self._spark,
            self._config.source.url,
            unit.chunks,
            snapshot.name,
            point,
            tables,
            self.filter,
        )

    def _read_missing(self, tables: Sequence[TableDefinition]) -> None:
        """Those that were planned by an earlier run."""
        missing = [table for table in tables if table.oid not in self._sources]
        if missing:
            self._read(missing, {})

    def _source(self, table: TableDefinition) -> CopySource:
        if table.oid not in self._sources:
            raise TableRewritten(
                f"Table {table.qualified_name} is gone from the source, or was changed.",
                table=table.oid,
            )
        return self._sources[table.oid]

    @contextmanager
    def snapshot_of_now(self) -> Iterator[tuple[int, ReadKeys]]:
        """For rows that have to be read again by their keys."""
        url = self._config.source.url

        def read(table: TableDefinition, keys: Sequence[tuple[str, ...]]) -> TableRows:
            self._read_missing([table])
            point = Frontier.before(now.lsn)
            return read_keys(url, self._source(table), table, keys, now.name, point)

        with slot_snapshot(
            url,
            application=self._application,
            wait=SLOT_WAIT_SECONDS,
            say=self._say,
            check=self.check,
        ) as now:
            yield now.lsn, read


def _not_empty(table: TableDefinition) -> TableRefused:
    return TableRefused(
        f"the destination's table for {table.qualified_name} holds rows that Penstock did not "
        "bring; it was not copied",
        remedy="empty it, or let the copy do that with source.copy: {existing_rows: truncate}; "
        "then `penstock tables retry`",
        table=table.oid,
    )
