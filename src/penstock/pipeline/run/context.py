"""What the parts of one run share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from penstock.changelog.changelog import ChangeLog
from penstock.changelog.feed import SegmentFeed
from penstock.config.models import PipelineConfig
from penstock.destination.contract import Destination
from penstock.metrics.pipeline_metrics import Metrics
from penstock.pipeline.run.engine import Engine
from penstock.source.contract import Source, SourceSession
from penstock.store import Store
from penstock.transform.filter import Filter
from penstock.transform.transform import Transform


@dataclass(frozen=True)
class RunContext:
    """Made once, by ``Pipeline``; every part of the run gets it and keeps what it needs.

    ``session`` belongs to the main thread alone, and ``destination`` to whoever the contract names;
    all others may be used by every thread.
    """

    config: PipelineConfig
    file: Path
    log: ChangeLog
    store: Store
    source: Source
    session: SourceSession
    destination: Destination
    engine: Engine
    metrics: Metrics
    filter: Filter | None = None
    feed: SegmentFeed | None = None
    """Where capture tells of new segments; None where the log costs nothing to list."""
    transform: Transform | None = None
