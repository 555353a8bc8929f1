"""What a command opens at its start and closes at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path

from penstock.changelog.changelog import ChangeLog
from penstock.changelog.feed import FeedFile
from penstock.config.models import PipelineConfig
from penstock.destination.contract import Destination
from penstock.destination.protocols import CountsByItself, NamesSource
from penstock.destination.registry import make_destination
from penstock.metrics.pipeline_metrics import Metrics
from penstock.model.table_definition import TableDefinition
from penstock.pipeline.copy.schema_copy import check_schema
from penstock.pipeline.run.context import RunContext
from penstock.pipeline.run.engine import MakeEngine
from penstock.pipeline.run.filtering import (
    check_filter,
    pipeline_filter,
    pipeline_transform,
    seen_by,
)
from penstock.pipeline.run.held import expect_source, held_by
from penstock.pipeline.run.promises import check_promises
from penstock.source.contract import SourceSession
from penstock.source.registry import make_source
from penstock.store import Store

OpenStore = Callable[[Destination], AbstractContextManager[Store]]


@contextmanager
def opened_destination(
    config: PipelineConfig, session: SourceSession, metrics: Metrics
) -> Iterator[Destination]:
    """The pipeline's destination, taken over; not where it holds what came from another source:
    whoever brings that must not be fenced.
    """
    destination = make_destination(
        config.destination_type, config.destination_options, config.delivery
    )
    log = ChangeLog.of(config.change_log)
    try:
        check_filter(config, destination)
        check_promises(config, destination)
        check_schema(config, destination)
        if (held := held_by(destination, log)) is not None:
            expect_source(session.seen(), held, log)
        if isinstance(destination, CountsByItself):
            destination.count_in(metrics.registry)
        destination.open()
        yield destination
    finally:
        destination.close()


@contextmanager
def opened_context(
    config: PipelineConfig,
    file: Path,
    make_engine: MakeEngine,
    *,
    purpose: str,
    open_store: OpenStore,
    metrics: Metrics,
    feed: AbstractContextManager[FeedFile | None] | None = None,
) -> Iterator[RunContext]:
    """The pipeline's lock, its destination and its store for as long as the block; the engine is
    not started yet. ``purpose`` is what others see of the session. ``feed`` tells what is new in
    the log.
    """
    source = make_source(config)
    transform = pipeline_transform(config)
    log = ChangeLog.of(config.change_log)
    log.root.make_private()
    with (
        source.session(purpose) as session,
        opened_destination(config, session, metrics) as destination,
        open_store(destination) as store,
        feed or nullcontext() as told,
    ):
        wanted = pipeline_filter(config, holds_rows=destination.capabilities.merges)
        seen, asked = seen_by(destination, wanted, transform, source, session)
        if transform is not None:
            transform.compare_with(partial(_known_versions, store))
        yield RunContext(
            config,
            file,
            log,
            store,
            seen,
            asked,
            destination,
            make_engine(config, [step for step in (wanted, transform) if step is not None]),
            metrics,
            wanted,
            told,
            transform,
        )


def _known_versions(store: Store) -> dict[int, list[tuple[int, TableDefinition]]]:
    return {
        oid: [(version.lsn, version.definition) for version in store.get_schema_versions(oid)]
        for oid in store.get_table_schemas()
    }


def name_source(context: RunContext) -> None:
    """Tell a destination that sends it on of which source its changes are. After the subscription
    is made, if one is.
    """
    if isinstance(context.destination, NamesSource):
        context.destination.come_from(context.session.seen().identity)
