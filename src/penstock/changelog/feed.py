"""New segments, told by who writes them to those who read them in the same run.

A hint that spares them most of the listings: what is told counts only where it follows what a
listing has shown (view.py).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from penstock.changelog.segment_name import SegmentName

Told = list[tuple[SegmentName, int]]
"""Segments with their sizes."""
TakeTold = Callable[[], Told]
"""What was told since the last time."""

# Who has not asked for longer lists the log.
_MOST_TOLD = 1000


class SegmentFeed:
    """One for each run. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[deque[tuple[SegmentName, int]]] = []

    def add(self, name: str, size: int) -> None:
        """Called with what capture says. What is no segment's name is left out."""
        parsed = SegmentName.parse(name)
        if parsed is None:
            return
        with self._lock:
            for waiting in self._waiting:
                waiting.append((parsed, size))

    def reader(self) -> TakeTold:
        """One more who is told; each is told everything."""
        waiting: deque[tuple[SegmentName, int]] = deque(maxlen=_MOST_TOLD)
        with self._lock:
            self._waiting.append(waiting)

        def take() -> Told:
            with self._lock:
                told = list(waiting)
                waiting.clear()
                return told

        return take
