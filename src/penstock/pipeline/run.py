"""`penstock run`: one pipeline from its file to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.backoff import Backoff
from penstock.changelog.changelog import ChangeLog
from penstock.config.models import PipelineConfig
from penstock.destination.contract import Destination
from penstock.error_policy import Action, decide
from penstock.errors import PenstockError, TableChanged, TableRefused
from penstock.lsn import Frontier
from penstock.metrics.pipeline_metrics import Metrics
from penstock.metrics.written import JobResult
from penstock.pipeline.apply_batch import BatchCommitter, Delivered
from penstock.pipeline.capture_child import CaptureChild
from penstock.pipeline.copies import make_copies
from penstock.pipeline.copy_manager import CopyManager
from penstock.pipeline.copy_progress import CopyView
from penstock.pipeline.filtering import pipeline_filter
from penstock.pipeline.followed_tables import FollowedTables
from penstock.pipeline.joins import Joins
from penstock.pipeline.opened import opened_destination, spark_session
from penstock.pipeline.schema_follower import SchemaFollower
from penstock.pipeline.subscribed_tables import SubscribedTables
from penstock.pipeline.watched import Watched
from penstock.postgres.pipeline_lock import KeptLock
from penstock.postgres.schema_tracking import NOT_TRACKED, ensure_tracking
from penstock.postgres.slot import current_wal_lsn
from penstock.postgres.subscription import Subscription, ensure_subscription
from penstock.store import MemoryStore, Store, pipeline_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.query import PipelineQuery

_TURN_SECONDS = 0.1

Stopping = Callable[[], bool]
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
        self._joins: Joins | None = None
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
                    merges=destination.capabilities.mode == "merge",
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
                    run = _Run(
                        session,
                        destination,
                        committer,
                        tables,
                        subscribed,
                        schema,
                        lock,
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
                        stopping=stopping,
                        target=target,
                    )
                    self._supervise(run)
            return committer.standing.frontier

    @contextmanager
    def _open_store(self, destination: Destination) -> Iterator[Store]:
        """Where the states of tables are kept, if they have more than one, and their definitions,
        if that matters.
        """
        config = self._config
        lasting = (
            destination.capabilities.tables_fail_alone
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
            lambda: self._joins,
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

    def _supervise(self, run: _Run) -> None:
        """Keep the query going; returns when it is time to stop."""
        pause = Backoff()
        while not run.stopping():
            try:
                if not run.schema.follow(run.lock.conn, run.may_go_on):
                    self._until_there(run, pause)
                    continue
                with self._query(run) as query:
                    while not run.stopping():
                        if query.is_under_way:
                            self._metrics.health.streams()
                            if run.tables.changed() or run.schema.is_due():
                                break
                        if query.wait(_TURN_SECONDS):
                            # Ended by somebody else, without an error: a new one takes its place.
                            break
                        run.tables.joined(run.committer.standing.behind)
                        if run.has_reached_target():
                            return
                        run.watch()
            except PenstockError as raised:
                error = run.after_a_change(raised) if isinstance(raised, TableChanged) else raised
                if error is None:
                    continue
                action = decide(error)
                self._metrics.failed("stream", error)
                fails_alone = run.destination.capabilities.tables_fail_alone
                if isinstance(error, TableRefused) and fails_alone:
                    run.tables.refuse(error)
                elif action in (Action.STOP, Action.SET_ASIDE):
                    raise error from None
                else:
                    self._say(f"{error.message}; going on from {run.committer.standing.frontier}")
                    if action is Action.RETRY:
                        pause.wait(run.stopping)
                self._metrics.retried("stream")
            self._until_there(run, pause)

    def _until_there(self, run: _Run, pause: Backoff) -> None:
        """Ask the destination where it stands, until it answers; capture goes on meanwhile."""
        while not run.stopping():
            try:
                run.watch()
                run.take_up()
                return
            except PenstockError as error:
                if decide(error) is not Action.RETRY:
                    raise
                self._metrics.failed("stream", error)
                self._metrics.retried("stream")
                self._say(error.message)
                pause.wait(run.stopping)

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

    @contextmanager
    def _query(self, run: _Run) -> Iterator[PipelineQuery]:
        from penstock.spark.query import PipelineQuery, QuerySettings

        batch = self._config.batch
        settings = QuerySettings(
            self._config.change_log.path,
            batch.max_bytes,
            batch.max_growth,
            batch.buffer_bytes,
            batch.max_age or run.destination.capabilities.batch_age,
        )
        standing, part = run.committer.standing, run.tables.part
        joins = Joins(standing.floors(part.set_aside, part.known))

        def commit(job: JobResult, frontier: Frontier) -> None:
            # A destination that has to be asked where it stands is asked between two queries.
            joins.wait_for(frontier, lambda: run.committer.is_unsure)
            run.committer(job, frontier)

        query = PipelineQuery(
            run.spark,
            settings,
            standing.start(part.set_aside),
            run.destination.task_writer,
            joins.floors_at,
            self._filter,
            commit,
        )
        self._joins = joins
        try:
            with query:
                yield query
        finally:
            self._joins = None
            joins.end()


@dataclass(frozen=True)
class _Run:
    """What one run has at hand."""

    spark: SparkSession
    destination: Destination
    committer: BatchCommitter
    tables: FollowedTables
    subscribed: SubscribedTables
    schema: SchemaFollower
    lock: KeptLock
    take_up: Callable[[], None]
    watch: Callable[[], None]
    stopping: Stopping
    target: int

    def may_go_on(self) -> bool:
        """Whether nothing has to be done between two queries, while there is none."""
        self.watch()
        return not self.stopping() and not self.tables.changed()

    def after_a_change(self, seen: TableChanged) -> PenstockError | None:
        """Follow a schema change that showed in the rows; what stands in the way of that."""
        try:
            self.take_up()
            self.schema.notice(self.lock.conn, seen)
        except PenstockError as error:
            return error
        self.take_up()
        return None

    def has_reached_target(self) -> bool:
        """Whether every table that can go on has got where it was to get."""
        standing = self.committer.standing
        return (
            bool(self.target)
            and standing.frontier.end_lsn >= self.target
            and standing.is_together(self.tables.part.set_aside)
            and self.tables.are_settled
            and self.subscribed.is_settled
        )
