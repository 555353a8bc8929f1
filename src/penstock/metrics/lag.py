"""How far the destination is behind the source. Pure.

The source is asked now and then how far its WAL is. Whoever holds the WAL of such a moment holds
all that was committed by then: so the lag in seconds needs no clock of the source, and a source
that is idle for an hour and then commits is not an hour ahead.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

_MOST_LOOKS = 2000


class Lag:
    """Used by who asks the source, who commits, and who looks at the metrics."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._looks: list[tuple[int, float]] = []
        """WAL position and time, oldest first: the newest that is delivered, and those after it."""
        self._delivered = 0
        self._committed_at = 0.0

    def source_is_at(self, lsn: int) -> None:
        with self._lock:
            now = self._clock()
            if self._looks and self._looks[-1][0] >= lsn:
                lsn = self._looks.pop()[0]
            self._looks.append((lsn, now))
            self._forget()
            if len(self._looks) > _MOST_LOOKS:
                # A backlog of hours is told as well by half of them.
                del self._looks[1:-1:2]

    def delivered(self, lsn: int, commit_micros: int = 0) -> None:
        """The destination holds the WAL up to ``lsn``; when its last change was committed, at the
        source, counts as long as nothing better is known.
        """
        with self._lock:
            self._delivered = max(self._delivered, lsn)
            self._committed_at = max(self._committed_at, commit_micros / 1e6)
            self._forget()

    def _forget(self) -> None:
        held = sum(lsn <= self._delivered for lsn, _ in self._looks)
        del self._looks[: max(0, held - 1)]

    @property
    def bytes(self) -> int:
        with self._lock:
            return self._bytes()

    def _bytes(self) -> int:
        return max(0, self._looks[-1][0] - self._delivered) if self._looks else 0

    @property
    def seconds(self) -> float:
        with self._lock:
            if not self._bytes():
                return 0.0
            lsn, seen = self._looks[0]
            # Nothing of what was seen is held: it is at least as old as that, or what came last.
            known = seen if lsn <= self._delivered else self._committed_at or seen
            return max(0.0, self._clock() - max(known, self._committed_at))
