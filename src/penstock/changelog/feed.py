"""New segments, told by who writes them to those who read them on the same machine.

A hint that spares them most of the listings: what is told counts only where it follows what a
listing has shown (view.py). A run hands what its capture process says to its own view, and by a
small file to the process in which Spark plans batches.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from penstock.changelog.segment_name import SegmentName

Told = list[tuple[SegmentName, int]]
"""Segments with their sizes."""
TakeTold = Callable[[], Told]
"""What was told since the last time."""

# Then the file begins anew.
_MOST_BYTES = 64 * 1024


class SegmentFeed:
    """The writing end: one for each run. ``add`` for any thread."""

    def __init__(self, folder: str | None = None) -> None:
        """``folder`` is where the file is made; the system's for temporary files by default."""
        handle, path = tempfile.mkstemp(prefix="penstock-feed-", dir=folder)
        os.close(handle)
        self.path = Path(path)
        self._lock = threading.Lock()
        self._waiting: Told = []

    def add(self, name: str, size: int) -> None:
        parsed = SegmentName.parse(name)
        if parsed is None:
            return
        with self._lock, suppress(OSError):
            self._waiting.append((parsed, size))
            if self.path.stat().st_size > _MOST_BYTES:
                # Another file, so that who reads notices, also if it grows as long as this one.
                begun = self.path.with_suffix(".new")
                begun.touch(0o600)
                begun.replace(self.path)
            with self.path.open("ab", buffering=0) as file:
                file.write(f"{name} {size}\n".encode())

    def take(self) -> Told:
        """What was added since the last time, for this process."""
        with self._lock:
            told, self._waiting = self._waiting[-1000:], []
            return told

    def close(self) -> None:
        with self._lock, suppress(OSError):
            self.path.unlink()


class FeedReader:
    """The reading end, in another process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1
        self._place = 0

    def __call__(self) -> Told:
        """What was added since the last time. A line that is half written comes the next time."""
        try:
            found = os.stat(self._path)  # noqa: PTH116 (called often)
        except OSError:
            return []
        if found.st_ino != self._file:
            self._file, self._place = found.st_ino, 0
        if found.st_size <= self._place:
            return []
        try:
            with open(self._path, "rb", buffering=0) as file:  # noqa: PTH123
                file.seek(self._place)
                lines, found_end, _ = file.read().rpartition(b"\n")
        except OSError:
            return []
        if not found_end:
            return []
        self._place += len(lines) + 1
        told = []
        for line in lines.decode(errors="replace").splitlines():
            name, _, size = line.partition(" ")
            parsed = SegmentName.parse(name)
            if parsed is not None and size.isdigit():
                told.append((parsed, int(size)))
        return told
