"""One function decides what an error means for a pipeline."""

from __future__ import annotations

from enum import Enum

from penstock.model.errors import (
    BatchAgain,
    CheckFailed,
    ConfigError,
    DecodeError,
    DestinationError,
    DestinationUnavailable,
    LogError,
    LogUnavailable,
    PenstockError,
    SegmentGone,
    SnapshotGone,
    SourceError,
    SourceUnavailable,
    SparkLost,
    StoreError,
    StoreUnavailable,
    TableRefused,
    TableRewritten,
)


class Action(Enum):
    """What to do next."""

    RETRY = "retry"
    """The same again, after a pause that grows: nothing is wrong that time does not heal."""
    AGAIN = "again"
    """The same at once: the cause is known and gone."""
    SET_ASIDE = "set aside"
    """One table waits for a person or for a while, and the others go on."""
    STOP = "stop"
    """A person has to look: going on would lose, repeat or invent rows."""


_RETRY = (
    SourceUnavailable,
    DestinationUnavailable,
    StoreUnavailable,
    LogUnavailable,
    SegmentGone,
)
_STOP = (
    CheckFailed,
    ConfigError,
    DecodeError,
    DestinationError,
    LogError,
    SourceError,
    SparkLost,
    StoreError,
)


def decide(error: PenstockError) -> Action:
    """Retry what can pass by itself, stop at everything else that is known by kind.

    An error of no known kind (a lost executor, a killed worker) is retried: every batch can be
    replayed.
    """
    if isinstance(error, _RETRY):
        return Action.RETRY
    if isinstance(error, BatchAgain | SnapshotGone | TableRewritten):
        return Action.AGAIN
    if isinstance(error, TableRefused):
        return Action.SET_ASIDE
    return Action.STOP if isinstance(error, _STOP) else Action.RETRY
