"""What capture does beside the stream: readers' positions, old segments, its own report.

All of it asks the log's storage, which may take its time. So it has a thread of its own: the loop
that answers Postgres only looks at what was found last.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from types import TracebackType
from typing import Any, Self

from penstock.cadence import paced
from penstock.changelog import chain
from penstock.changelog.changelog import ChangeLog, Listing, ReaderState
from penstock.changelog.retention import PassedSince, Retention, passed_by_all
from penstock.changelog.writer import LogWriter
from penstock.config.models import PipelineConfig
from penstock.model.errors import LogError, LogUnavailable, PenstockError
from penstock.model.lsn import NOTHING, Frontier, format_lsn
from penstock.source.capture.link import Link
from penstock.source.capture.say import say

# How often what a supervisor tells is looked at.
_TURN_SECONDS = 0.2
_HOUSEKEEPING_SECONDS = paced(1.0)


@dataclass(frozen=True)
class Readers:
    """Where the readers of the log are, by name, and what one of them would like to see. Those that
    are ``absent`` are awaited: what they will need stays.
    """

    held: Mapping[str, Frontier] = field(default_factory=dict)
    wanted_lsn: int = 0
    absent: frozenset[str] = frozenset()
    stream: Frontier | None = None
    """What the streams of all of them have passed, whatever tables were set aside; None without
    readers.
    """

    @property
    def frontiers(self) -> tuple[Frontier, ...]:
        return tuple(self.held.values())

    @property
    def held_lsn(self) -> int | None:
        """What may be confirmed; None without readers."""
        return min((frontier.end_lsn for frontier in self.held.values()), default=None)

    @property
    def last(self) -> str | None:
        """The reader that holds least: the log is kept for it. None without readers."""
        return min(self.held, key=lambda name: self.held[name], default=None)


@dataclass(frozen=True)
class Awaited:
    """The destinations of a file that names several, by their readers' names, and from where on
    the log is kept for those of them that have not written down where they are.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    since: Frontier = NOTHING

    @classmethod
    def of(cls, config: PipelineConfig, writer: LogWriter, start: Frontier = NOTHING) -> Awaited:
        """Whoever has not begun yet may want all that is there; an empty log begins at `start`."""
        if not config.is_one_of_many:
            return cls()
        segments = writer.listing.segments
        first = segments[0].after if segments else start.commit_lsn
        return cls({own: name for name, own in config.deliveries.items()}, Frontier(first, first))


@dataclass(frozen=True)
class Limits:
    """How much the log may hold, and for how long beyond its readers."""

    max_bytes: int
    grace: float


@dataclass(frozen=True)
class FilledLog:
    """The log that a session fills, who is told of what is new in it, and for whom it is kept.
    ``passed`` is all sessions': what they remember for ``Retention``.
    """

    log: ChangeLog
    writer: LogWriter
    link: Link = field(default_factory=Link)
    awaited: Awaited = field(default_factory=Awaited)
    passed: PassedSince = field(default_factory=dict)


class LogKeeper:
    """From ``with`` to the end of the block. ``session`` says how the session is."""

    def __init__(
        self, filled: FilledLog, limits: Limits, session: Callable[[], dict[str, Any]]
    ) -> None:
        self._awaited = filled.awaited
        self._seen: set[str] = set()
        """Readers that were there: one that is gone since was let go by a person."""
        self._log = filled.log
        self._writer = filled.writer
        self._limits = limits
        self._retention = Retention(
            limits.grace, filled.passed, late_writes=filled.log.segments.has_late_writes
        )
        self._session = session
        self._link = filled.link
        self._written: dict[str, ReaderState] = {}
        self._removable: tuple[Frontier, ...] = ()
        """Where readers are as they have written it down. What whoever lists the log could not
        know to be held by all is not removed.
        """
        self._next_readers = self._next_report = self._next_turn = 0.0
        self._told_full = False
        self._failure: PenstockError | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log keeper", daemon=True)
        self.readers = Readers()
        self.is_paused = False
        """Whether the loop has found the log full."""

    def __enter__(self) -> Self:
        self.look()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._thread.join()

    def check(self) -> None:
        """Raise what has gone wrong here and does not pass by itself."""
        if self._failure is not None:
            raise self._failure

    def look(self, *, now: bool = False) -> None:
        """Do what is due; with ``now`` read all positions, and say how things are, in any case."""
        at = time.monotonic()
        if now or at >= self._next_readers:
            self._next_readers = at + self._log.readers.pace.readers
            self._written = self._log.all_readers()
        states = {**self._written, **self._link.told}
        self._seen |= states.keys()
        absent = frozenset(self._awaited.names) - self._seen
        not_begun = dict.fromkeys(absent, self._awaited.since)
        passed = {name: state.stream or state.frontier for name, state in states.items()}
        self.readers = Readers(
            {name: state.frontier for name, state in states.items()} | not_begun,
            max((state.wanted_lsn for state in states.values()), default=0),
            absent,
            min((passed | not_begun).values(), default=None),
        )
        self._removable = tuple(
            self._written[name].frontier if name in self._written else NOTHING
            for name in self.readers.held
        )
        if now or at >= self._next_turn:
            self._next_turn = at + _HOUSEKEEPING_SECONDS
            self._housekeeping(at)
            report = self.report("paused" if self.is_paused else "streaming")
            self._tell_full(report)
            self._link.say(report)
            if now or at >= self._next_report:
                self._next_report = at + self._log.root.pace.report
                self._log.set_capture_report(report)

    def report(self, state: str) -> dict[str, Any]:
        report = {"state": state, **self._session(), "log_bytes": self._writer.total_bytes}
        if state == "paused" and len(self.readers.held) > 1:
            report |= {"held_by": self.readers.last, "full": self._full_text()}
        return report

    def _full_text(self) -> str:
        """What a person is told of a full log that several read: who is behind, and what to do."""
        readers, listing = self.readers, self._writer.listing
        last = readers.last or ""
        needed = chain.waiting_bytes(listing.segments, listing.sizes, readers.held[last])
        at = f"it stands at {format_lsn(readers.held[last].end_lsn)}"
        if last in readers.absent:
            at = "it has never run"
        name = self._awaited.names.get(last)
        who = f"reader {last}" if name is None else f"destination {name}"
        give_up = f", or give it up with `penstock destroy FILE --only {name}`"
        return (
            f"the change log is full: it has change_log.max_bytes ({self._limits.max_bytes} "
            f"bytes), and capture waits until {who} has taken from it; {at}, and {needed} bytes "
            f"wait for it. See to it that it runs, or raise change_log.max_bytes"
            + ("" if name is None else give_up)
        )

    def _tell_full(self, report: Mapping[str, Any]) -> None:
        if "full" in report and not self._told_full:
            say(report["full"])
        self._told_full = "full" in report

    def _run(self) -> None:
        while not self._done.wait(_TURN_SECONDS):
            try:
                self.look()
            except LogUnavailable:
                # Whoever publishes finds out as well, and decides.
                continue
            except PenstockError as error:
                self._failure = error
                return

    def is_full(self) -> bool:
        """Whether nothing may be added before readers have gone on. Asked by the loop each time: it
        takes no more than a look at a number, unless that is too large.
        """
        if self._writer.total_bytes < self._limits.max_bytes:
            return False
        listing = self._writer.listing
        if _can_shrink(listing, self.readers.frontiers):
            return True
        self._check_transaction_size(listing)
        return False

    def _housekeeping(self, now: float) -> None:
        listing = self._writer.listing
        expired = self._retention.expired(listing.segments, self._removable, now)
        if expired:
            self._writer.remove(expired)

    def _check_transaction_size(self, listing: Listing) -> None:
        """Readers can pass a transaction only once it is whole: waiting for them would be for ever.

        Otherwise capture goes on. What is left then is one segment, which says where the log ends,
        and perhaps the beginning of a transaction.
        """
        if _unfinished_bytes(listing) >= self._limits.max_bytes:
            raise LogError(
                f"one transaction takes more room than change_log.max_bytes "
                f"({self._limits.max_bytes} bytes) allows; its first part was written after "
                f"{format_lsn(listing.segments[-1].last)}",
                remedy="raise change_log.max_bytes above the size of the largest transaction, and "
                "start again: Postgres sends it again, whole",
            )


def _unfinished_bytes(listing: Listing) -> int:
    """What the last transaction takes by itself, if it is not whole yet: segments with nothing
    else in them.
    """
    own = takewhile(lambda segment: segment.is_unfinished, reversed(listing.segments))
    return sum(listing.sizes[segment] for segment in own)


def _can_shrink(listing: Listing, readers: Sequence[Frontier]) -> bool:
    """Whether readers or the end of the grace period can still free something."""
    passed = passed_by_all(listing.segments, readers)
    return bool(passed) or not readers or min(readers) < listing.segments[-1].frontier
