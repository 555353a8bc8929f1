"""Where a table stands on its way into the destination: a pure state machine. No I/O.

A state says what a table waits for and who may do something about it, so that two parts of a
pipeline never take the same step, and so that a restart knows where to go on.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar, Literal

from penstock.model.errors import StoreError
from penstock.model.lsn import format_lsn, parse_lsn

Phase = Literal[
    "init",
    "data_sync",
    "finished_copy",
    "sync_wait",
    "catchup",
    "sync_done",
    "ready",
    "errored",
]

FIRST_PAUSE = timedelta(seconds=10)
LONGEST_PAUSE = timedelta(minutes=10)
MOST_ATTEMPTS = 8
"""With the pauses above, half an hour or less; what has not passed by then needs a person."""


@dataclass(frozen=True)
class ManualRetry:
    """Nothing happens until a person asks for it: `penstock tables retry`."""

    def to_json(self) -> dict[str, Any]:
        return {"policy": "manual"}


@dataclass(frozen=True)
class TimedRetry:
    """The pipeline tries again by itself at ``next_at``; ``attempt`` counts from 1."""

    attempt: int
    next_at: datetime

    def to_json(self) -> dict[str, Any]:
        return {"policy": "timed", "attempt": self.attempt, "next_at": self.next_at.isoformat()}


RetryPolicy = ManualRetry | TimedRetry


def retry_policy(
    attempt: int, now: datetime, jitter: Callable[[], float] = random.random
) -> RetryPolicy:
    """How the ``attempt``-th new try of a failing table comes about, counted from 1.

    The pause doubles from ``FIRST_PAUSE`` to ``LONGEST_PAUSE``; a part of it is left to chance,
    between half and all, so that tables that failed together do not come back together. After
    ``MOST_ATTEMPTS`` a person decides. ``jitter`` gives numbers from 0 to 1.
    """
    if attempt > MOST_ATTEMPTS:
        return ManualRetry()
    pause = min(FIRST_PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE)
    return TimedRetry(attempt, now + pause * (0.5 + jitter() / 2))


@dataclass(frozen=True)
class Init:
    """Known, and nothing done yet. Set by whoever finds the table, and when it must start again:
    the import manager (resync) or the copy (its snapshot or the table's file is gone).
    """

    phase: ClassVar[Phase] = "init"


@dataclass(frozen=True)
class DataSync:
    """Its rows are being copied; its changes wait in the log. Set by the table's copy."""

    phase: ClassVar[Phase] = "data_sync"


@dataclass(frozen=True)
class FinishedCopy:
    """All its rows are in the destination; its changes still wait. Set by the table's copy."""

    phase: ClassVar[Phase] = "finished_copy"


@dataclass(frozen=True)
class SyncWait:
    """It waits to be told how far to catch up. Set by the table's copy."""

    phase: ClassVar[Phase] = "sync_wait"


@dataclass(frozen=True)
class Catchup:
    """Its changes up to ``lsn`` are being replayed, apart from the other tables. Set by the
    pipeline, which knows where those stand.
    """

    phase: ClassVar[Phase] = "catchup"
    lsn: int


@dataclass(frozen=True)
class SyncDone:
    """It holds everything up to ``lsn``. Set by the table's copy, once the replay got there."""

    phase: ClassVar[Phase] = "sync_done"
    lsn: int


@dataclass(frozen=True)
class Ready:
    """It is delivered with all others. Set by the pipeline: when the others have reached the
    table's LSN, or at once where rows are not copied.
    """

    phase: ClassVar[Phase] = "ready"


@dataclass(frozen=True)
class Errored:
    """Nothing of it is delivered while the others go on; the log keeps its changes. Set by whoever
    met the error. It ends by a retry or a rollback, back to the state before, or by a resync.
    ``delivered`` says that the stream had brought its changes until then.
    """

    phase: ClassVar[Phase] = "errored"
    reason: str
    solution: str = ""
    retry: RetryPolicy = ManualRetry()
    delivered: bool = False


TableState = Init | DataSync | FinishedCopy | SyncWait | Catchup | SyncDone | Ready | Errored

# What may follow by an ordinary update. Not listed: errored, which may follow everything.
# Back to init leads from every state: a person may have any table copied anew.
_NEXT: Mapping[Phase, frozenset[Phase]] = {
    "init": frozenset({"data_sync", "ready"}),
    "data_sync": frozenset({"finished_copy", "init"}),
    "finished_copy": frozenset({"sync_wait", "init"}),
    "sync_wait": frozenset({"catchup", "init"}),
    "catchup": frozenset({"sync_done", "init"}),
    "sync_done": frozenset({"ready", "init"}),
    "ready": frozenset({"init"}),
    "errored": frozenset({"init"}),
}

_WITHOUT_VALUES: Mapping[str, TableState] = {
    state.phase: state for state in (Init(), DataSync(), FinishedCopy(), SyncWait(), Ready())
}


def transition(old: TableState | None, new: TableState) -> TableState:
    """``new``, where a table may go there from ``old``; ``old`` is None for a table not seen yet.

    The same state again is allowed, because a writer whose connection broke does not know whether
    it was heard. Raises StoreError for everything that is not.
    """
    if old is None:
        if isinstance(new, Init):
            return new
        raise StoreError(
            f"A table that Penstock has not seen yet cannot become {new.phase}; it begins at init."
        )
    if old == new or isinstance(new, Errored) or new.phase in _NEXT[old.phase]:
        return new
    if isinstance(old, Errored):
        raise StoreError(
            f"A table in state errored cannot become {new.phase}: it failed ({old.reason}).",
            remedy="`penstock tables retry` puts it back into the state before the error; "
            "`penstock tables resync` copies it anew.",
        )
    allowed = ", ".join([*sorted(_NEXT[old.phase]), "errored"])
    raise StoreError(
        f"A table in state {old.phase} cannot become {new.phase}; what may follow is {allowed}."
    )


def state_to_json(state: TableState) -> dict[str, Any]:
    """A JSON object that ``state_from_json`` reads."""
    match state:
        case Catchup(lsn) | SyncDone(lsn):
            return {"phase": state.phase, "lsn": format_lsn(lsn)}
        case Errored(reason, solution, retry, delivered):
            return {
                "phase": state.phase,
                "reason": reason,
                "solution": solution,
                "retry": retry.to_json(),
                "delivered": delivered,
            }
        case _:
            return {"phase": state.phase}


def state_from_json(value: Mapping[str, Any]) -> TableState:
    """The state behind the JSON. Raises StoreError for anything else, such as a phase of a newer
    Penstock.
    """
    try:
        match value["phase"]:
            case "catchup":
                return Catchup(parse_lsn(value["lsn"]))
            case "sync_done":
                return SyncDone(parse_lsn(value["lsn"]))
            case "errored":
                return Errored(
                    value["reason"],
                    value["solution"],
                    _retry_from_json(value["retry"]),
                    bool(value.get("delivered", False)),
                )
            case phase:
                return _WITHOUT_VALUES[phase]
    except (KeyError, TypeError, ValueError, AttributeError):
        raise StoreError(
            f"The stored table state {dict(value)!r} is not one that this version of Penstock "
            "knows.",
            remedy="Use the version that wrote it, or a newer one.",
        ) from None


def _retry_from_json(value: Mapping[str, Any]) -> RetryPolicy:
    if value["policy"] == "timed":
        return TimedRetry(value["attempt"], datetime.fromisoformat(value["next_at"]))
    if value["policy"] == "manual":
        return ManualRetry()
    raise ValueError(value["policy"])
