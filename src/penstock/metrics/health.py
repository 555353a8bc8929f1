"""Whether a pipeline lives, and whether it does its work. What it answers, a person can read.

What is wrong is a trouble with a beginning. ``/ready`` tells of it at once, ``/health`` once it has
lasted: a server that is restarted makes nobody start the pipeline again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

STALLED_SECONDS = 600.0
"""A batch, or a chunk of a copy, that takes longer than this is taken for one that hangs."""
SLOW_SECONDS = 60.0
"""Work that waits for longer than this, while nothing is delivered, is told by ``/ready``; where
nothing is even under way, by ``/health``.
"""
LASTING_SECONDS = 30.0
"""A trouble that lasts longer than this is told by ``/health``."""
# Capture reports once a second, and asks a silent server after half a minute.
_UNREPORTED_SECONDS = 15.0
_SILENT_SECONDS = 45.0


@dataclass(frozen=True)
class Answer:
    ok: bool
    body: dict[str, Any]


class Health:
    """The driver says what it sees; ``health`` and ``ready`` say what that means."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._turned = self._moved = self._begun = self._delivered = clock()
        self._failure: str | None = None
        self._streams = False
        self._unsettled: int | None = None
        self._errored = 0
        self._behind = False
        self._batches: int | None = None
        """How many batches are under way; None while no query is."""
        self._worked: tuple[float, int | None] = (clock(), None)
        """When tasks of a batch were last seen to work, and how much they had worked by then."""
        self._troubles: dict[str, tuple[float, str]] = {}
        self._asked: dict[object, tuple[str, float]] = {}
        self._captures = False
        self._reported: tuple[float, Any] = (clock(), None)
        """When capture last said something else than before, and when it says that was."""

    # -- what the driver says ------------------------------------------------------------------

    def turned(self, *, has_work: bool, is_behind: bool = False) -> None:
        """The driver's loop came by; ``has_work``: the destination lacks something, ``is_behind``:
        something of the stream.
        """
        with self._lock:
            self._turned = self._clock()
            if not is_behind or not self._behind:
                self._begun = self._turned
            self._behind = is_behind
            if not has_work:
                self._has_moved()

    def moved(self) -> None:
        """Something was delivered."""
        with self._lock:
            self._has_moved()
            self._delivered = self._moved

    def _has_moved(self) -> None:
        self._moved = self._clock()
        self._troubles.pop("delivery", None)

    def failed(self, reason: str) -> None:
        """The pipeline has ended with an error."""
        with self._lock:
            self._failure = reason

    def streams(self) -> None:
        """The query has begun to read."""
        with self._lock:
            self._streams = True

    @contextmanager
    def query(self) -> Iterator[None]:
        """For as long as the block, Spark is to begin a batch whenever there is work."""
        with self._lock:
            self._batches, self._begun = 0, self._clock()
        try:
            yield
        finally:
            with self._lock:
                self._batches = None

    def batch(self, step: int) -> None:
        """One more batch is under way (1), or one less (-1)."""
        with self._lock:
            self._begun = self._clock()
            if self._batches is not None:
                self._batches = max(0, self._batches + step)

    def tasks_worked(self, work: int | None) -> None:
        """How much tasks of a batch have worked; None where none is being written, or nobody can
        tell.
        """
        with self._lock:
            if work is None or work != self._worked[1]:
                self._worked = (self._clock(), work)

    def captures(self, report: Mapping[str, Any]) -> None:
        """What capture last said; nothing where it has said nothing yet."""
        with self._lock:
            now, at, state = self._clock(), report.get("at"), report.get("state")
            if at != self._reported[1] or at is None:
                self._reported = (now, at)
            self._captures = state in ("streaming", "paused")
            unreported, silent = now - self._reported[0], report.get("silent_seconds", 0.0)
            reason, ago = None, 0.0
            if not self._captures:
                said = report.get("error") or state or "it has not said anything yet"
                reason = f"capture does not stream yet: {said}"
            elif unreported > _UNREPORTED_SECONDS:
                reason = f"capture has not reported for {unreported:.0f} s"
                ago = unreported
            elif silent > _SILENT_SECONDS:
                reason, ago = f"the source has sent nothing to capture for {silent:.0f} s", silent
            self._trouble("capture", reason, ago)
            full = report.get("full") or (
                "the change log is full: capture waits until the destination has taken from it"
            )
            self._trouble("log", full if state == "paused" else None)

    def trouble(self, what: str, reason: str | None) -> None:
        """What is wrong with ``what`` at the moment; None: nothing."""
        with self._lock:
            self._trouble(what, reason)

    def _trouble(self, what: str, reason: str | None, ago: float = 0.0) -> None:
        if reason is None:
            self._troubles.pop(what, None)
        else:
            since, _ = self._troubles.get(what, (self._clock(), ""))
            self._troubles[what] = (min(since, self._clock() - ago), reason)

    def delivery_failed(self, reason: str) -> None:
        """A batch was not delivered; it is tried again. A delivery ends this trouble."""
        self.trouble("delivery", reason)

    @contextmanager
    def asking(self, whom: str) -> Iterator[None]:
        """For as long as the block, somebody waits for an answer that takes a moment."""
        question = object()
        with self._lock:
            self._asked[question] = (whom, self._clock())
        try:
            yield
        finally:
            with self._lock:
                del self._asked[question]

    def tables(self, *, unsettled: int, errored: int) -> None:
        """How many tables are on their way to be ready, and how many wait for a person."""
        with self._lock:
            self._unsettled, self._errored = unsettled, errored

    # -- what others ask -----------------------------------------------------------------------

    @property
    def undelivered_seconds(self) -> float:
        """How long ago something was delivered."""
        with self._lock:
            return self._clock() - self._delivered

    def health(self) -> Answer:
        """Whether it makes sense to let it go on."""
        with self._lock:
            now = self._clock()
            if self._failure is not None:
                reasons = [f"the pipeline has failed: {self._failure}"]
            else:
                reasons = [*self._lasting(now), *self._stalled(now)]
            return _answer("healthy", reasons, seconds_since_progress=round(now - self._moved, 1))

    def ready(self) -> Answer:
        """Whether every table is brought on."""
        with self._lock:
            now = self._clock()
            reasons = []
            if self._failure is not None:
                reasons.append(f"the pipeline has failed: {self._failure}")
            if not self._captures and "capture" not in self._troubles:
                reasons.append("capture does not stream yet")
            if not self._streams:
                reasons.append("the stream has not begun yet")
            if self._unsettled is None:
                reasons.append("the tables are not known yet")
            elif self._unsettled:
                reasons.append(f"{self._unsettled} tables are not copied yet")
            reasons += [reason for _, reason in self._troubles.values()]
            reasons += self._unanswered(now)
            if now - self._moved > SLOW_SECONDS:
                reasons.append(self._undelivered(now))
            return _answer("ready", reasons, errored_tables=self._errored)

    def _lasting(self, now: float) -> Iterator[str]:
        for what, (since, reason) in self._troubles.items():
            # A full log that is being read is a backlog on its way.
            reads = what == "log" and now - self._moved <= LASTING_SECONDS
            if now - since > LASTING_SECONDS and not reads:
                yield f"{reason} (for {now - since:.0f} s)"
        yield from self._unanswered(now)

    def _unanswered(self, now: float) -> Iterator[str]:
        for whom, since in self._asked.values():
            if now - since > LASTING_SECONDS:
                yield f"{whom} has not answered for {now - since:.0f} s"

    def _stalled(self, now: float) -> Iterator[str]:
        if now - self._turned > STALLED_SECONDS:
            yield (
                f"nothing was seen to for {now - self._turned:.0f} s: the source does not answer, "
                "or the driver hangs"
            )
        elif now - self._moved > STALLED_SECONDS:
            yield self._undelivered(now)
        elif self._behind and self._batches == 0 and now - self._begun > SLOW_SECONDS:
            yield f"Spark has begun no batch for {now - self._begun:.0f} s, though there is work"
        elif self._hanging() > SLOW_SECONDS:
            yield (
                f"the tasks of a batch have used no processor time for {self._hanging():.0f} s: "
                "they hang, or wait for a destination that takes nothing"
            )

    def _hanging(self) -> float:
        """For how long tasks of a batch were seen to do nothing."""
        since, work = self._worked
        return self._turned - since if work is not None else 0.0

    def _undelivered(self, now: float) -> str:
        return f"nothing was delivered for {now - self._moved:.0f} s, though there is work"


def _answer(good: str, reasons: list[str], **more: Any) -> Answer:
    return Answer(
        not reasons, {"status": f"not {good}" if reasons else good, "reasons": reasons, **more}
    )
