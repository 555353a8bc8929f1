"""One function decides what an error means for a pipeline."""

from __future__ import annotations

from enum import Enum

from penstock.errors import (
    CheckFailed,
    ConfigError,
    DecodeError,
    DestinationError,
    DestinationUnavailable,
    LogError,
    PenstockError,
    SourceError,
    SourceUnavailable,
    SparkLost,
)


class Action(Enum):
    """What to do next."""

    RETRY = "retry"
    """The same again, after a pause that grows: nothing is wrong that time does not heal."""
    STOP = "stop"
    """A person has to look: going on would lose, repeat or invent rows."""


_STOP = (
    CheckFailed,
    ConfigError,
    DecodeError,
    DestinationError,
    LogError,
    SourceError,
    SparkLost,
)


def decide(error: PenstockError) -> Action:
    """Retry what can pass by itself, stop at everything else that is known by kind.

    An error of no known kind (a lost executor, a killed worker) is retried: every batch can be
    replayed.
    """
    if isinstance(error, SourceUnavailable | DestinationUnavailable):
        return Action.RETRY
    return Action.STOP if isinstance(error, _STOP) else Action.RETRY
