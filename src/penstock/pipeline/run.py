"""`penstock run`: one pipeline from its file to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg

from penstock.backoff import Backoff
from penstock.changelog.changelog import ChangeLog
from penstock.config.models import PipelineConfig
from penstock.destination.contract import Destination
from penstock.destination.registry import make_destination
from penstock.error_policy import Action, decide
from penstock.errors import PenstockError, TableRefused
from penstock.lsn import Frontier
from penstock.pipeline.apply_batch import BatchCommitter, Delivered
from penstock.pipeline.capture_child import CaptureChild
from penstock.pipeline.followed_tables import FollowedTables
from penstock.pipeline.standing import Standing
from penstock.postgres.definitions import read_definitions
from penstock.postgres.pipeline_lock import KeptLock
from penstock.postgres.slot import current_wal_lsn
from penstock.postgres.subscription import Subscription, ensure_subscription
from penstock.store import MemoryStore, Store, pipeline_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.query import PipelineQuery

_TURN_SECONDS = 0.1

Stopping = Callable[[], bool]
Observe = Callable[[Delivered], None]


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
        say: Callable[[str], None] = print,
    ) -> None:
        self._config = config
        self._file = file
        self._observe = observe
        self._say = say
        self._log = ChangeLog(config.change_log.path)

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
        application = f"penstock {self._config.name} run"
        with KeptLock(self._config.source.url, self._config.name, application) as lock:
            conn = lock.conn
            subscription = ensure_subscription(conn, self._config)
            target = current_wal_lsn(conn) if until_caught_up else 0
            with self._open_destination() as destination, self._open_store(destination) as store:
                tables = self._enrol(conn, subscription, destination, store)
                committer = BatchCommitter(
                    destination, self._log, self._config.name, target, self._observe
                )
                self._take_up(committer, destination, subscription, tables)
                with self._session(spark) as session, self._capture() as capture:
                    take_up = partial(self._take_up, committer, destination, subscription, tables)
                    watch = partial(self._watch, capture, lock, Backoff(), stopping)
                    self._supervise(
                        session,
                        destination,
                        committer,
                        tables,
                        take_up,
                        watch,
                        stopping,
                        target,
                    )
            return committer.standing.frontier

    @contextmanager
    def _open_destination(self) -> Iterator[Destination]:
        config = self._config
        destination = make_destination(
            config.destination_type, config.destination_options, config.name
        )
        try:
            destination.open()
            yield destination
        finally:
            destination.close()

    @contextmanager
    def _open_store(self, destination: Destination) -> Iterator[Store]:
        """Where the states of tables are kept, if a table of this destination can fail alone."""
        config = self._config
        lasting = destination.capabilities.tables_fail_alone or config.store.url is not None
        with pipeline_store(config) if lasting else MemoryStore(config.name) as store:
            store.open()
            yield store

    def _enrol(
        self,
        conn: psycopg.Connection[Any],
        subscription: Subscription,
        destination: Destination,
        store: Store,
    ) -> FollowedTables:
        definitions = read_definitions(conn, subscription.tables, subscription.publications)
        destination.prepare(definitions)
        tables = FollowedTables(store, self._say)
        tables.enrol(definitions, subscription.start_lsn)
        return tables

    def _take_up(
        self,
        committer: BatchCommitter,
        destination: Destination,
        subscription: Subscription,
        tables: FollowedTables,
    ) -> None:
        """Go on where the destination stands, or if it does not know, where it was last seen."""
        held = destination.committed()
        if held is None and not destination.capabilities.remembers:
            recorded = self._log.reader(self._config.name)
            held = recorded.frontier if recorded else None
        start = held or Frontier(0, subscription.start_lsn)
        committer.begin(Standing(start, destination.behind()), tables.set_aside)

    @contextmanager
    def _session(self, given: SparkSession | None) -> Iterator[SparkSession]:
        if given is not None:
            yield given
            return
        from penstock.spark.session import end_session, make_session

        session = make_session(self._config.name, self._config.spark)
        try:
            yield session
        finally:
            end_session(session)

    @contextmanager
    def _capture(self) -> Iterator[CaptureChild]:
        capture = CaptureChild(self._file, self._log)
        capture.start()
        try:
            yield capture
        finally:
            capture.stop()

    def _supervise(
        self,
        spark: SparkSession,
        destination: Destination,
        committer: BatchCommitter,
        tables: FollowedTables,
        take_up: Callable[[], None],
        watch: Callable[[], None],
        stopping: Stopping,
        target: int,
    ) -> None:
        """Keep the query going; returns when it is time to stop."""
        pause = Backoff()
        while not stopping():
            try:
                with self._query(spark, destination, committer, tables) as query:
                    while not stopping() and not tables.changed():
                        if query.wait(_TURN_SECONDS):
                            # Ended by somebody else, without an error: a new one takes its place.
                            break
                        if target and _has_reached(committer.standing, target, tables):
                            return
                        watch()
            except PenstockError as error:
                action = decide(error)
                if isinstance(error, TableRefused) and destination.capabilities.tables_fail_alone:
                    tables.refuse(error)
                elif action in (Action.STOP, Action.SET_ASIDE):
                    raise
                else:
                    self._say(f"{error.message}; going on from {committer.standing.frontier}")
                    if action is Action.RETRY:
                        pause.wait(stopping)
            self._until_there(take_up, watch, pause, stopping)

    def _until_there(
        self,
        take_up: Callable[[], None],
        watch: Callable[[], None],
        pause: Backoff,
        stopping: Stopping,
    ) -> None:
        """Ask the destination where it stands, until it answers; capture goes on meanwhile."""
        while not stopping():
            try:
                watch()
                take_up()
                return
            except PenstockError as error:
                if decide(error) is not Action.RETRY:
                    raise
                self._say(error.message)
                pause.wait(stopping)

    def _watch(
        self, capture: CaptureChild, lock: KeptLock, pause: Backoff, stopping: Stopping
    ) -> None:
        """See to it that capture runs, and that nobody takes this pipeline for a stopped one."""
        lock.keep()
        try:
            ended = capture.ended()
        except PenstockError as error:
            if decide(error) is not Action.RETRY:
                raise
            self._say(error.message)
            ended = True
        if ended:
            self._say("capture ended unexpectedly; starting it again")
            pause.wait(stopping)
            capture.start()

    def _query(
        self,
        spark: SparkSession,
        destination: Destination,
        committer: BatchCommitter,
        tables: FollowedTables,
    ) -> PipelineQuery:
        from penstock.spark.query import PipelineQuery, QuerySettings

        batch = self._config.batch
        settings = QuerySettings(
            self._config.change_log.path,
            batch.max_bytes,
            batch.max_growth,
            batch.buffer_bytes,
            batch.max_age or destination.capabilities.batch_age,
        )
        standing = committer.standing
        return PipelineQuery(
            spark,
            settings,
            standing.start(tables.set_aside),
            destination.task_writer,
            standing.floors(tables.set_aside),
            committer,
        )


def _has_reached(standing: Standing, target: int, tables: FollowedTables) -> bool:
    """Whether every table that can go on has got there."""
    return standing.frontier.end_lsn >= target and standing.is_together(tables.set_aside)
