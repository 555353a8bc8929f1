"""The stream of a run: one query after another, and what is done between two of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from penstock.backoff import Backoff
from penstock.changelog.batch_size import BatchSize
from penstock.changelog.log_batches import LogBatches
from penstock.destination.protocols import TablesFailAlone
from penstock.metrics.written import JobResult
from penstock.model.error_policy import Action, decide
from penstock.model.errors import (
    DestinationError,
    LogError,
    LogUnavailable,
    PenstockError,
    SegmentGone,
    SparkLost,
    StoreUnavailable,
    TableChanged,
    TableRefused,
)
from penstock.model.lsn import Frontier
from penstock.pipeline.run.batch_committer import BatchCommitter
from penstock.pipeline.run.context import RunContext
from penstock.pipeline.run.joins import CurrentJoins, Joins
from penstock.pipeline.run.pieces import Pieces
from penstock.pipeline.run.stream_batches import BatchPart, StreamBatches
from penstock.pipeline.run.supervisor import Stopping, Supervisor
from penstock.pipeline.schema.schema_follower import SchemaFollower
from penstock.pipeline.tables.registry import TableRegistry
from penstock.pipeline.tables.subscribed_tables import SubscribedTables
from penstock.transform.floors import Floors

_TURN_SECONDS = 0.1
# How many pieces a batch of the usual size has, where it comes in pieces.
_PIECES = 2

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamParts:
    """The parts of a run that the stream has to do with."""

    tables: TableRegistry
    committer: BatchCommitter
    subscribed: SubscribedTables
    schema: SchemaFollower
    supervisor: Supervisor
    joins: CurrentJoins


class Stream:
    """Keeps a query going, on the main thread.

    ``begin`` is where a destination stands that has never been seen. ``target`` is how far to get,
    0 for no end.
    """

    def __init__(
        self,
        context: RunContext,
        parts: StreamParts,
        begin: Frontier,
        stopping: Stopping,
        target: int,
    ) -> None:
        self._context = context
        self._told = context.told()
        self._metrics = context.metrics
        self._tables = parts.tables
        self._committer = parts.committer
        self._schema = parts.schema
        self._parts = parts
        self._begin = begin
        self._stopping = stopping
        self._target = target

    def run(self) -> None:
        """Return when it is time to stop."""
        pause = Backoff()
        while not self._stopping():
            try:
                if not self._schema.follow(self._may_go_on):
                    self._until_there(pause)
                    continue
                if self._run_query():
                    return
            except PenstockError as raised:
                if isinstance(raised, SparkLost) and self._stopping():
                    # A supervisor that stops us may signal each of our processes: this is no loss.
                    return
                error = self._after_a_change(raised) if isinstance(raised, TableChanged) else raised
                if error is None:
                    continue
                try:
                    self._heed(error, pause)
                except (LogUnavailable, StoreUnavailable) as away:
                    # Whoever knows what is to be done about it: then it comes again.
                    self._failed(away)
                    self._try_again(away, pause)
            self._until_there(pause)

    def _run_query(self) -> bool:
        """One query; True once it has got as far as it was to get."""
        health = self._metrics.health
        with self._query() as query:
            while not self._stopping():
                with health.asking("Spark"):
                    self._context.engine.check()
                health.streams()
                if self._tables.changed() or self._schema.is_due():
                    break
                query.wait(_TURN_SECONDS)
                self._tables.joined(self._committer.standing.behind)
                if self._has_reached_target():
                    return True
                self._committer.record.keep()
                self._parts.supervisor.turn(self._stopping)
                if self._committer.failed_aside:
                    break
        return False

    def _heed(self, error: PenstockError, pause: Backoff) -> None:
        """Raises it, unless the next query may do better."""
        action = decide(error)
        if isinstance(error, SegmentGone) and self._is_listed(error.segment):
            raise LogError(
                f"{error.message}; it is listed here, so whoever looked for it sees another log",
                remedy="let all machines see the same folder or bucket as change_log.path; "
                "`penstock check` asks each executor",
            )
        self._failed(error)
        fails_alone = isinstance(self._context.destination, TablesFailAlone)
        if isinstance(error, DestinationError) and self._committer.is_set_back():
            # It lacks what the batch was written for: no table is at fault.
            _log.warning(error.message, extra={"event": "stream_failed"})
        elif isinstance(error, LogError) and self._committer.is_overtaken():
            _log.warning(error.message, extra={"event": "stream_failed"})
        elif isinstance(error, TableRefused) and fails_alone:
            self._tables.refuse_delivery(error)
        elif action in (Action.STOP, Action.SET_ASIDE):
            raise self._committer.behind(error) from None
        else:
            self._try_again(error, pause)
            return
        self._metrics.retried("stream")

    def _try_again(self, error: PenstockError, pause: Backoff) -> None:
        _log.warning(
            "%s; going on from %s",
            error.message,
            self._committer.standing.frontier,
            extra={"event": "stream_failed"},
        )
        if decide(error) is Action.RETRY:
            pause.wait(self._stopping)
        self._metrics.retried("stream")

    def _is_listed(self, segment: str) -> bool:
        return any(str(name) == segment for name in self._context.log.list().segments)

    def _until_there(self, pause: Backoff) -> None:
        """Ask the destination where it stands, until it answers; capture goes on meanwhile."""
        while not self._stopping():
            try:
                self._parts.supervisor.turn(self._stopping)
                self._resume()
                return
            except PenstockError as error:
                if decide(error) is not Action.RETRY:
                    raise self._committer.behind(error) from None
                self._failed(error)
                self._metrics.retried("stream")
                _log.warning(error.message, extra={"event": "stream_failed"})
                pause.wait(self._stopping)

    def _failed(self, error: PenstockError) -> None:
        self._metrics.failed("stream", error)
        if decide(error) is Action.RETRY:
            self._metrics.health.delivery_failed(error.message)

    def _resume(self) -> None:
        self._committer.resume(self._begin, self._tables)

    @contextmanager
    def _query(self) -> Iterator[StreamBatches]:
        standing, part = self._committer.standing, self._tables.part
        health = self._metrics.health
        abilities = self._context.destination.capabilities
        joins = Joins(
            Floors.of_stream(standing, part.set_aside, part.known),
            at_once=abilities.sends_at_once and abilities.merges,
        )

        def floors_at(start: Frontier) -> Floors:
            health.batch(+1)
            return joins.floors_at(start, lambda: self._committer.is_unsure or self._stopping())

        def heed() -> None:
            health.batch(0)
            if batches.listing is not None:
                self._committer.heed_writer(batches.listing)

        def commit(job: JobResult, frontier: Frontier) -> None:
            try:
                # A destination that has to be asked where it stands is asked between two queries.
                joins.wait_for(frontier, lambda: self._committer.is_unsure)
                self._committer(job, frontier)
            finally:
                health.batch(-1)

        def may_take() -> bool:
            return joins.is_settled and not self._committer.is_unsure

        context = self._context
        batch = context.config.batch
        batches = LogBatches(
            context.log,
            standing.start(part.set_aside),
            BatchSize(batch.max_bytes, batch.max_growth),
            context.config.delivery if context.config.is_one_of_many else None,
            self._told,
        )
        query = StreamBatches(
            context.engine,
            batches,
            batch.max_age or abilities.batch_age,
            BatchPart(
                context.destination.writer,
                floors_at,
                heed,
                commit,
                lambda: health.batch(-1),
                Pieces(
                    context.destination,
                    batch.max_bytes // _PIECES,
                    may_take,
                    self._committer.locked,
                ),
            ),
            context.new_segments,
        )
        self._parts.joins.query = joins
        try:
            with health.query(), query as running:
                yield running
        finally:
            self._parts.joins.query = None
            joins.end()

    def _may_go_on(self) -> bool:
        """Whether nothing has to be done between two queries, while there is none."""
        self._parts.supervisor.turn(self._stopping)
        return not self._stopping() and not self._tables.changed()

    def _after_a_change(self, seen: TableChanged) -> PenstockError | None:
        """Follow a schema change that showed in the rows; what stands in the way of that."""
        try:
            self._resume()
            self._schema.notice(seen)
            self._resume()
        except TableChanged as other:
            # Of what comes before it, another table may have changed, too: that is followed first.
            return self._after_a_change(other) if other.commit_lsn < seen.commit_lsn else other
        except PenstockError as error:
            return error
        return None

    def _has_reached_target(self) -> bool:
        """Whether every table that can go on has got where it was to get."""
        standing = self._committer.standing
        return (
            bool(self._target)
            and standing.frontier.end_lsn >= self._target
            and standing.is_together(self._tables.part.set_aside)
            and self._tables.are_settled
            and self._parts.subscribed.is_settled
            and self._parts.supervisor.is_settled
        )
