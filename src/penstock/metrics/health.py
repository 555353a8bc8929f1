"""Whether a pipeline lives, and whether it does its work. What it answers, a person can read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

STALLED_SECONDS = 600.0
"""A batch, or a chunk of a copy, that takes longer than this is taken for one that hangs."""


@dataclass(frozen=True)
class Answer:
    ok: bool
    body: dict[str, Any]


class Health:
    """The driver says what it sees; ``health`` and ``ready`` say what that means."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._turned = self._moved = clock()
        self._failure: str | None = None
        self._streams = False
        self._captures = False
        self._unsettled: int | None = None
        self._errored = 0

    # -- what the driver says ------------------------------------------------------------------

    def turned(self, *, has_work: bool) -> None:
        """The driver's loop came by; ``has_work``: the destination lacks something."""
        with self._lock:
            self._turned = self._clock()
            if not has_work:
                self._moved = self._turned

    def moved(self) -> None:
        """Something was delivered."""
        with self._lock:
            self._moved = self._clock()

    def failed(self, reason: str) -> None:
        """The pipeline has ended with an error."""
        with self._lock:
            self._failure = reason

    def streams(self) -> None:
        """The query has begun to read."""
        with self._lock:
            self._streams = True

    def captures(self, yes: bool) -> None:
        """Whether capture reads the slot."""
        with self._lock:
            self._captures = yes

    def tables(self, *, unsettled: int, errored: int) -> None:
        """How many tables are on their way to be ready, and how many wait for a person."""
        with self._lock:
            self._unsettled, self._errored = unsettled, errored

    # -- what others ask -----------------------------------------------------------------------

    def health(self) -> Answer:
        """Whether it makes sense to let it go on."""
        with self._lock:
            now = self._clock()
            reasons = []
            if self._failure is not None:
                reasons.append(f"the pipeline has failed: {self._failure}")
            elif now - self._turned > STALLED_SECONDS:
                reasons.append(
                    f"nothing was seen to for {now - self._turned:.0f} s: the source does not "
                    "answer, or the driver hangs"
                )
            elif now - self._moved > STALLED_SECONDS:
                reasons.append(
                    f"nothing was delivered for {now - self._moved:.0f} s, though there is work"
                )
            return _answer("healthy", reasons, seconds_since_progress=round(now - self._moved, 1))

    def ready(self) -> Answer:
        """Whether every table is brought on."""
        with self._lock:
            reasons = []
            if self._failure is not None:
                reasons.append(f"the pipeline has failed: {self._failure}")
            if not self._captures:
                reasons.append("capture does not stream yet")
            if not self._streams:
                reasons.append("the stream has not begun yet")
            if self._unsettled is None:
                reasons.append("the tables are not known yet")
            elif self._unsettled:
                reasons.append(f"{self._unsettled} tables are not copied yet")
            return _answer("ready", reasons, errored_tables=self._errored)


def _answer(good: str, reasons: list[str], **more: Any) -> Answer:
    return Answer(
        not reasons, {"status": f"not {good}" if reasons else good, "reasons": reasons, **more}
    )
