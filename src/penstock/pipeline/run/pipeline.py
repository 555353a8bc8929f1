"""`penstock run`: one pipeline from its file to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.backoff import Backoff
from penstock.changelog.changelog import ChangeLog
from penstock.config.models import PipelineConfig
from penstock.destination.contract import Destination
from penstock.destination.protocols import TablesFailAlone
from penstock.metrics.pipeline_metrics import Metrics
from penstock.model.error_policy import Action, decide
from penstock.model.errors import PenstockError
from penstock.model.lsn import Frontier
from penstock.pipeline.copy.copies import make_copies
from penstock.pipeline.copy.copy_manager import CopyManager
from penstock.pipeline.copy.copy_progress import CopyView
from penstock.pipeline.run.batch_committer import BatchCommitter, Delivered
from penstock.pipeline.run.capture_child import CaptureChild
from penstock.pipeline.run.filtering import pipeline_filter
from penstock.pipeline.run.opened import opened_destination, spark_session
from penstock.pipeline.run.stream import Stopping, Stream
from penstock.pipeline.run.watched import Watched
from penstock.pipeline.schema.schema_follower import SchemaFollower
from penstock.pipeline.tables.followed_tables import FollowedTables
from penstock.pipeline.tables.subscribed_tables import SubscribedTables
from penstock.source.postgres.pipeline_lock import KeptLock
from penstock.source.postgres.schema_tracking import NOT_TRACKED, ensure_tracking
from penstock.source.postgres.subscription.slot import current_wal_lsn
from penstock.source.postgres.subscription.subscription import Subscription, ensure_subscription
from penstock.store import MemoryStore, Store, pipeline_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Observe = Callable[[Delivered], None]
ObserveCopies = Callable[[list[CopyView]], None]


def ignore(_delivered: Delivered) -> None:
    """For those who do not watch."""


class Pipeline:
    """One run of one pipeline. Everything it starts is gone when ``run`` returns or raises."""

    def __init__(
        self,
        config: PipelineConfig,
        file: Path,
        *,
        observe: Observe = ignore,
        observe_copies: ObserveCopies = lambda _copies: None,
        say: Callable[[str], None] = print,
        metrics: Metrics | None = None,
    ) -> None:
        self._config = config
        self._file = file
        self._observe = observe
        self._observe_copies = observe_copies
        self._say = say
        self._metrics = metrics or Metrics(config.name)
        self._log = ChangeLog(config.change_log.path)
        self._stream: Stream | None = None
        self._filter = pipeline_filter(config)

    def run(
        self,
        stopping: Stopping,
        *,
        until_caught_up: bool = False,
        spark: SparkSession | None = None,
    ) -> Frontier:
        """Deliver until ``stopping()``, or until what was committed at the start is delivered.

        Returns what the destination holds. A session that is passed in is left running.
        """
        try:
            return self._run(stopping, until_caught_up, spark)
        except PenstockError as error:
            self._metrics.health.failed(error.message)
            raise

    def _run(
        self, stopping: Stopping, until_caught_up: bool, spark: SparkSession | None
    ) -> Frontier:
        config = self._config
        application = f"penstock {config.name} run"
        with KeptLock(config.source.url, config.name, application) as lock:
            # First of all: what the slot brings is told completely.
            if config.schema_changes.track and not ensure_tracking(lock.conn):
                self._say(NOT_TRACKED)
            subscription = ensure_subscription(lock.conn, config)
            target = current_wal_lsn(lock.conn) if until_caught_up else 0
            with opened_destination(config) as destination, self._open_store(destination) as store:
                tables = FollowedTables(
                    store,
                    self._say,
                    merges=destination.capabilities.merges,
                    copies=config.source.copy_rows is not None,
                )
                committer = BatchCommitter(
                    destination, self._log, config.name, target, self._observe, self._metrics
                )
                subscribed = SubscribedTables(
                    config, destination, store, tables, committer, self._say
                )
                subscribed.enrol(lock.conn, subscription)
                self._take_up(committer, subscription, tables)
                with (
                    spark_session(config, spark) as session,
                    self._capture() as capture,
                    self._copies(session, destination, store, tables, committer) as copies,
                ):
                    schema = self._schema(
                        session, destination, store, tables, committer, subscribed
                    )
                    watched = Watched(self._metrics, capture, store, tables)
                    stream = self._stream = Stream(
                        config,
                        session,
                        destination,
                        committer,
                        tables,
                        subscribed,
                        schema,
                        lock,
                        self._filter,
                        self._metrics,
                        take_up=partial(self._take_up, committer, subscription, tables),
                        watch=partial(
                            self._watch,
                            capture,
                            lock,
                            subscribed,
                            copies,
                            watched,
                            Backoff(),
                            stopping,
                        ),
                        say=self._say,
                        stopping=stopping,
                        target=target,
                    )
                    stream.run()
            return committer.standing.frontier

    @contextmanager
    def _open_store(self, destination: Destination) -> Iterator[Store]:
        """Where the states of tables are kept, if they have more than one, and their definitions,
        if that matters.
        """
        config = self._config
        lasting = (
            isinstance(destination, TablesFailAlone)
            or destination.capabilities.tells_by_definitions
            or config.source.copy_rows is not None
            or config.store.url is not None
        )
        with pipeline_store(config) if lasting else MemoryStore(config.name) as store:
            store.open()
            yield store

    def _take_up(
        self, committer: BatchCommitter, subscription: Subscription, tables: FollowedTables
    ) -> None:
        """Go on where the destination stands, or if it does not know, where it was last seen."""
        part = tables.take_part()
        begin = Frontier(0, subscription.start_lsn)
        standing = committer.take_up(begin, part.known, part.set_aside, part.waiting)
        tables.joined(standing.behind)

    @contextmanager
    def _capture(self) -> Iterator[CaptureChild]:
        capture = CaptureChild(self._file, self._log)
        capture.start()
        try:
            yield capture
        finally:
            capture.stop()
            self._metrics.captured(capture.report())

    @contextmanager
    def _copies(
        self,
        spark: SparkSession,
        destination: Destination,
        store: Store,
        tables: FollowedTables,
        committer: BatchCommitter,
    ) -> Iterator[CopyManager | None]:
        if self._config.source.copy_rows is None:
            yield None
            return
        copies = make_copies(
            self._config,
            self._file,
            spark,
            destination,
            store,
            tables,
            committer,
            self._log,
            lambda: None if self._stream is None else self._stream.joins,
            self._say,
            self._metrics,
        )
        copies.start()
        try:
            yield copies
        finally:
            copies.stop()

    def _schema(
        self,
        spark: SparkSession,
        destination: Destination,
        store: Store,
        tables: FollowedTables,
        committer: BatchCommitter,
        subscribed: SubscribedTables,
    ) -> SchemaFollower:
        from penstock.spark.jobs import run_replay

        batch = self._config.batch
        return SchemaFollower(
            destination,
            store,
            tables,
            committer,
            self._log,
            subscribed,
            self._config.schema_changes.policy,
            batch.max_bytes,
            partial(
                run_replay,
                spark,
                self._config.change_log.path,
                batch.buffer_bytes,
                self._filter,
            ),
            self._filter,
            self._say,
            self._metrics,
        )

    def _watch(
        self,
        capture: CaptureChild,
        lock: KeptLock,
        subscribed: SubscribedTables,
        copies: CopyManager | None,
        watched: Watched,
        pause: Backoff,
        stopping: Stopping,
    ) -> None:
        """See to it that everything runs beside the query, and that nobody takes this pipeline for
        a stopped one.
        """
        lock.keep()
        watched.look(lock.conn)
        subscribed.reconcile(lock.conn)
        if copies is not None:
            copies.check()
            copies.show(self._observe_copies)
        try:
            ended = capture.ended()
        except PenstockError as error:
            if decide(error) is not Action.RETRY:
                raise
            self._metrics.failed("capture", error)
            self._say(error.message)
            ended = True
        if ended:
            self._metrics.retried("capture")
            self._say("capture ended unexpectedly; starting it again")
            pause.wait(stopping)
            capture.start()
