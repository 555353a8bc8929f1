"""The stream of a run: one query after another, and what is done between two of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.backoff import Backoff
from penstock.config.models import PipelineConfig
from penstock.destination.contract import Destination
from penstock.destination.protocols import TablesFailAlone
from penstock.metrics.pipeline_metrics import Metrics
from penstock.metrics.written import JobResult
from penstock.model.error_policy import Action, decide
from penstock.model.errors import PenstockError, SparkLost, TableChanged, TableRefused
from penstock.model.lsn import Frontier
from penstock.pipeline.run.batch_committer import BatchCommitter
from penstock.pipeline.run.joins import Joins
from penstock.pipeline.schema.schema_follower import SchemaFollower
from penstock.pipeline.tables.followed_tables import FollowedTables
from penstock.pipeline.tables.subscribed_tables import SubscribedTables
from penstock.source.postgres.pipeline_lock import KeptLock
from penstock.transform.filter import Filter
from penstock.transform.floors import Floors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.spark.query import PipelineQuery

_TURN_SECONDS = 0.1

Stopping = Callable[[], bool]


@dataclass
class Stream:
    """Keeps a query going.

    ``take_up`` asks the destination where it stands. ``watch`` sees to all that runs beside the
    query; it is called often, and raises what ends the run. ``target`` is how far to get, 0 for no
    end.
    """

    config: PipelineConfig
    spark: SparkSession
    destination: Destination
    committer: BatchCommitter
    tables: FollowedTables
    subscribed: SubscribedTables
    schema: SchemaFollower
    lock: KeptLock
    wanted: Filter | None
    metrics: Metrics
    take_up: Callable[[], None]
    watch: Callable[[], None]
    say: Callable[[str], None]
    stopping: Stopping
    target: int
    joins: Joins | None = None
    """Those of the query that is under way."""

    def run(self) -> None:
        """Return when it is time to stop."""
        pause = Backoff()
        while not self.stopping():
            try:
                if not self.schema.follow(self.lock.conn, self._may_go_on):
                    self._until_there(pause)
                    continue
                if self._run_query():
                    return
            except PenstockError as raised:
                if isinstance(raised, SparkLost) and self.stopping():
                    # A supervisor that stops us may signal each of our processes: this is no loss.
                    return
                error = self._after_a_change(raised) if isinstance(raised, TableChanged) else raised
                if error is None:
                    continue
                self._heed(error, pause)
            self._until_there(pause)

    def _run_query(self) -> bool:
        """One query; True once it has got as far as it was to get."""
        with self._query() as query:
            while not self.stopping():
                if query.is_under_way:
                    self.metrics.health.streams()
                    if self.tables.changed() or self.schema.is_due():
                        break
                if query.wait(_TURN_SECONDS):
                    # Ended by somebody else, without an error: a new one takes its place.
                    break
                self.tables.joined(self.committer.standing.behind)
                if self._has_reached_target():
                    return True
                self.watch()
        return False

    def _heed(self, error: PenstockError, pause: Backoff) -> None:
        """Raises it, unless the next query may do better."""
        action = decide(error)
        self.metrics.failed("stream", error)
        fails_alone = isinstance(self.destination, TablesFailAlone)
        if isinstance(error, TableRefused) and fails_alone:
            self.tables.refuse(error)
        elif action in (Action.STOP, Action.SET_ASIDE):
            raise error from None
        else:
            self.say(f"{error.message}; going on from {self.committer.standing.frontier}")
            if action is Action.RETRY:
                pause.wait(self.stopping)
        self.metrics.retried("stream")

    def _until_there(self, pause: Backoff) -> None:
        """Ask the destination where it stands, until it answers; capture goes on meanwhile."""
        while not self.stopping():
            try:
                self.watch()
                self.take_up()
                return
            except PenstockError as error:
                if decide(error) is not Action.RETRY:
                    raise
                self.metrics.failed("stream", error)
                self.metrics.retried("stream")
                self.say(error.message)
                pause.wait(self.stopping)

    @contextmanager
    def _query(self) -> Iterator[PipelineQuery]:
        from penstock.spark.query import PipelineQuery, QuerySettings

        batch = self.config.batch
        settings = QuerySettings(
            self.config.change_log.path,
            batch.max_bytes,
            batch.max_growth,
            batch.buffer_bytes,
            batch.max_age or self.destination.capabilities.batch_age,
        )
        standing, part = self.committer.standing, self.tables.part
        joins = Joins(Floors.of_stream(standing, part.set_aside, part.known))

        def commit(job: JobResult, frontier: Frontier) -> None:
            # A destination that has to be asked where it stands is asked between two queries.
            joins.wait_for(frontier, lambda: self.committer.is_unsure)
            self.committer(job, frontier)

        query = PipelineQuery(
            self.spark,
            settings,
            standing.start(part.set_aside),
            self.destination.writer,
            joins.floors_at,
            self.wanted,
            commit,
        )
        self.joins = joins
        try:
            with query:
                yield query
        finally:
            self.joins = None
            joins.end()

    def _may_go_on(self) -> bool:
        """Whether nothing has to be done between two queries, while there is none."""
        self.watch()
        return not self.stopping() and not self.tables.changed()

    def _after_a_change(self, seen: TableChanged) -> PenstockError | None:
        """Follow a schema change that showed in the rows; what stands in the way of that."""
        try:
            self.take_up()
            self.schema.notice(self.lock.conn, seen)
        except PenstockError as error:
            return error
        self.take_up()
        return None

    def _has_reached_target(self) -> bool:
        """Whether every table that can go on has got where it was to get."""
        standing = self.committer.standing
        return (
            bool(self.target)
            and standing.frontier.end_lsn >= self.target
            and standing.is_together(self.tables.part.set_aside)
            and self.tables.are_settled
            and self.subscribed.is_settled
        )
