"""`penstock run`: one pipeline from its file to its end.

The parts of a run are made here, and nowhere else; docs/life_of_a_run.md draws them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path

from penstock.changelog.changelog import ChangeLog
from penstock.changelog.feed import FeedFile, SegmentFeed
from penstock.changelog.shared_listing import shared_feed
from penstock.config.models import PipelineConfig
from penstock.destination.contract import Destination
from penstock.destination.protocols import TablesFailAlone
from penstock.metrics.pipeline_metrics import Metrics
from penstock.model.errors import PenstockError
from penstock.model.lsn import Frontier
from penstock.pipeline.copy.copies import make_copies
from penstock.pipeline.copy.copy_manager import CopyManager
from penstock.pipeline.copy.copy_progress import CopyView
from penstock.pipeline.run.batch_committer import BatchCommitter, Delivered
from penstock.pipeline.run.beginning import beginning
from penstock.pipeline.run.context import RunContext
from penstock.pipeline.run.destination_watch import DestinationWatch
from penstock.pipeline.run.engine import MakeEngine
from penstock.pipeline.run.joins import CurrentJoins
from penstock.pipeline.run.opened import name_source, opened_context
from penstock.pipeline.run.stream import Stream, StreamParts
from penstock.pipeline.run.supervisor import Stopping, Supervisor
from penstock.pipeline.run.watched import Watched
from penstock.pipeline.schema.schema_follower import SchemaFollower
from penstock.pipeline.tables.changed_rules import check_rules_at_start, heed_rules
from penstock.pipeline.tables.registry import TableRegistry
from penstock.pipeline.tables.subscribed_tables import SubscribedTables
from penstock.source.capture_elsewhere import CaptureElsewhere, CaptureShared
from penstock.source.contract import Capture, OnSegment
from penstock.store import MemoryStore, Store, pipeline_store


@dataclass(frozen=True)
class Observers:
    """Who watches a run: ``delivered`` is called by the thread that commits, ``copies`` by the main
    one; ``metrics`` are of the caller's making where somebody serves them.
    """

    delivered: Callable[[Delivered], None] = lambda _: None
    copies: Callable[[list[CopyView]], None] = lambda _: None
    metrics: Metrics | None = None


class Pipeline:
    """One run of one pipeline. Everything it starts is gone when ``run`` returns or raises."""

    def __init__(
        self,
        config: PipelineConfig,
        file: Path,
        make_engine: MakeEngine,
        *,
        observers: Observers | None = None,
        captures: bool = True,
        feed: Path | None = None,
    ) -> None:
        """``captures``: capture runs as a child; else somebody else has started it. ``feed`` is a
        file in which somebody tells what is new in the log (changelog/feed.py).
        """
        self._captures = captures
        self._feed = feed
        self._config = config
        self._file = file
        self._make_engine = make_engine
        self._observers = observers or Observers()
        self._metrics = self._observers.metrics or Metrics(config.name, config.destination_name)

    def run(self, stopping: Stopping, *, until_caught_up: bool = False) -> Frontier:
        """Deliver until ``stopping()``, or until what was committed at the start is delivered.

        Returns what the destination holds.
        """
        try:
            with opened_context(
                self._config,
                self._file,
                self._make_engine,
                purpose="run",
                open_store=self._open_store,
                metrics=self._metrics,
                feed=self._told(),
            ) as context:
                return self._run(context, stopping, until_caught_up)
        except PenstockError as error:
            self._metrics.health.failed(error.message)
            raise

    def _told(self) -> AbstractContextManager[FeedFile | None]:
        if self._feed is not None:
            return nullcontext(FeedFile(self._feed))
        # Of several destinations, a capture of our own may only stand by.
        told = self._captures and not self._config.is_one_of_many
        return shared_feed(ChangeLog.of(self._config.change_log), told=told)

    def _run(self, context: RunContext, stopping: Stopping, until_caught_up: bool) -> Frontier:
        subscription = context.session.subscribe()
        name_source(context)
        target = context.session.position() if until_caught_up else 0
        begin = beginning(context, subscription)
        tables = TableRegistry(
            context.store,
            merges=context.destination.capabilities.merges,
            copies=context.config.source.copy_rows is not None,
        )
        committer = BatchCommitter(context, wanted_lsn=target, observe=self._observers.delivered)
        subscribed = SubscribedTables(context, tables, committer)
        joins = CurrentJoins()
        check_rules_at_start(context, subscription)
        subscribed.enrol(subscription, begin)
        heed_rules(context, tables)
        committer.resume(begin, tables)
        # Before anything is delivered: somebody may have changed the publications meanwhile.
        subscribed.reconcile()
        with (
            # Connects while the engine starts.
            self._capture(context, committer) as capture,
            context.engine,
            DestinationWatch(context),
            self._copies(context, tables, committer, joins) as copies,
        ):
            supervisor = Supervisor(
                context,
                capture,
                subscribed,
                copies,
                Watched(context, capture, tables),
                self._observers.copies,
            )
            schema = SchemaFollower(context, tables, committer, subscribed)
            parts = StreamParts(tables, committer, subscribed, schema, supervisor, joins)
            Stream(context, parts, begin, stopping, target).run()
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
            # Whether it is a new one is seen by what is kept of it.
            or config.is_one_of_many
            or config.transform is not None
        )
        with pipeline_store(config) if lasting else MemoryStore(config.delivery) as store:
            store.open()
            yield store

    @contextmanager
    def _capture(self, context: RunContext, committer: BatchCommitter) -> Iterator[Capture]:
        new_segments = context.new_segments
        capture: Capture = CaptureElsewhere(context.log)
        if self._captures and context.config.is_one_of_many:
            own = context.source.capture(context.file, new_segments.came, stands_by=True)
            capture = CaptureShared(own, context.log)
        elif self._captures:
            capture = context.source.capture(context.file, _told_of(context))
            new_segments.are_told = True
        committer.record.listen(capture.tell)
        capture.start()
        try:
            yield capture
        finally:
            committer.record.close()
            capture.stop()
            # For the metrics alone.
            with suppress(PenstockError):
                context.metrics.captured(capture.report())

    @contextmanager
    def _copies(
        self,
        context: RunContext,
        tables: TableRegistry,
        committer: BatchCommitter,
        joins: CurrentJoins,
    ) -> Iterator[CopyManager | None]:
        if context.config.source.copy_rows is None:
            yield None
            return
        copies = make_copies(context, tables, committer, joins)
        copies.start()
        try:
            yield copies
        finally:
            copies.stop()


def _told_of(context: RunContext) -> OnSegment:
    """What is done with a segment that capture tells of."""

    def told(name: str, size: int) -> None:
        if isinstance(context.feed, SegmentFeed):
            context.feed.add(name, size)
        context.new_segments.came()

    return told
