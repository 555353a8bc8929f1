"""The steps of a pipeline, filter and rules, and what they do not suit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from penstock.config.filter_config import FilterConfig, Operation
from penstock.config.models import PipelineConfig
from penstock.destination.contract import Destination
from penstock.model.errors import ConfigError
from penstock.source.contract import Source, SourceSession
from penstock.source.filtered import FilteredSession, FilteredSource
from penstock.transform.filter import Filter
from penstock.transform.rules import Rules
from penstock.transform.transform import Transform

_WRONG_WITHOUT: Final[Mapping[Operation, str]] = {
    "insert": "rows would be missing that the source has",
    "update": "rows would stay as they were",
    "delete": "rows would stay that the source has deleted",
    "truncate": "rows would stay that the source has truncated",
    "read": "rows would be missing that were there before the stream",
}
"""What becomes of tables that hold rows where an operation does not pass."""


def pipeline_filter(config: PipelineConfig, *, holds_rows: bool) -> Filter | None:
    """None where everything passes. ``holds_rows``: as the destination merges."""
    if config.filter == FilterConfig():
        return None
    hides = None if config.transform is None else Rules(config.transform).covers
    return Filter(config.filter, holds_rows=holds_rows, hides=hides)


def pipeline_transform(config: PipelineConfig) -> Transform | None:
    """None where values leave as they are. Raises ConfigError where rules or key are wrong."""
    return None if config.transform is None else Transform(config.transform, Filter(config.filter))


def seen_by(
    destination: Destination,
    wanted: Filter | None,
    transform: Transform | None,
    source: Source,
    session: SourceSession,
) -> tuple[Source, SourceSession]:
    """Source and session as the destination is to see them: one that holds rows is told nothing of
    tables and columns that do not pass, and none of defaults that rules hide. Called once the
    destination is there.
    """
    if wanted is not None and destination.capabilities.merges:
        source, session = FilteredSource(source, wanted), FilteredSession(session, wanted)
    if transform is not None:
        source, session = FilteredSource(source, transform), FilteredSession(session, transform)
    return source, session


def check_filter(config: PipelineConfig, destination: Destination) -> None:
    """Raises ConfigError where the destination needs what would be filtered: one that holds the
    rows of its tables can do without whole tables, without columns beside the key, and without rows
    where the source tells of old ones (which ``Filter.definition`` looks at).
    """
    if not destination.capabilities.merges:
        return
    passing = config.filter.operations.passing
    for operation, reason in _WRONG_WITHOUT.items():
        if operation not in passing:
            raise ConfigError(
                f"filter.operations: {operation} does not pass, but destination {destination.name} "
                f"holds the rows of its tables: {reason}",
                remedy=f"let {operation} pass, or take a destination that keeps every change",
            )
