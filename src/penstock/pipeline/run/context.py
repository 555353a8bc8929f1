"""What the parts of one run share."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from penstock.changelog.changelog import ChangeLog
from penstock.changelog.feed import FeedFile, TakeTold
from penstock.config.models import PipelineConfig
from penstock.destination.contract import Destination
from penstock.metrics.pipeline_metrics import Metrics
from penstock.pipeline.run.engine import Engine
from penstock.pipeline.run.new_segments import NewSegments
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
    feed: FeedFile | None = None
    """What tells of new segments; None where the log costs nothing to list."""
    transform: Transform | None = None
    new_segments: NewSegments = field(default_factory=NewSegments)

    def told(self) -> TakeTold | None:
        """What one reader of the log is told, from now on."""
        return None if self.feed is None else self.feed.reader()
