"""What is new in a log that costs something to list, told to those who read it on this machine.

One process of a run lists, or hears of new segments from capture, and writes what it learns into a
small file; all drivers follow that file. What is told counts only where it follows what a listing
has shown (view.py): who finds that something is missing, or that nobody tells any more, lists for
himself.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from penstock.changelog.segment_name import SegmentName

# Then the file begins anew.
_MOST_BYTES = 64 * 1024
_SEEN = "="
_NONE = "-"


@dataclass(frozen=True)
class Seen:
    """What somebody saw who listed the log: when he began, by this machine's monotonic clock, the
    last segment, and the barriers.
    """

    at: float
    last: SegmentName | None
    barriers: tuple[str, ...]

    def to_line(self) -> str:
        # A barrier's name has no spaces; one that has is none of ours, and holds nobody.
        barriers = [name for name in self.barriers if not name.split()[1:]]
        return " ".join([_SEEN, repr(self.at), str(self.last or _NONE), *barriers])

    @classmethod
    def from_line(cls, line: str) -> Seen:
        """Raises ValueError for any other line."""
        _, at, last, *barriers = line.split(" ")
        return cls(float(at), SegmentName.parse(last), tuple(barriers))


@dataclass(frozen=True)
class Told:
    """Segments with their sizes, and the newest listing of which was told."""

    segments: list[tuple[SegmentName, int]] = field(default_factory=list)
    seen: Seen | None = None


TakeTold = Callable[[], Told]
"""What was told since the last time."""


class FeedFile:
    """The file, for those who follow it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def reader(self) -> FeedReader:
        """For one thread."""
        return FeedReader(str(self.path))


class SegmentFeed(FeedFile):
    """The writing end. ``add`` and ``tell`` are for any thread."""

    def __init__(self, folder: str | None = None) -> None:
        """``folder`` is where the file is made; the system's for temporary files by default."""
        handle, path = tempfile.mkstemp(prefix="penstock-feed-", dir=folder)
        os.close(handle)
        super().__init__(Path(path))
        self._lock = threading.Lock()
        self._waiting: list[tuple[SegmentName, int]] = []

    def add(self, name: str, size: int) -> None:
        """One that capture has told of."""
        parsed = SegmentName.parse(name)
        if parsed is None:
            return
        with self._lock:
            self._waiting.append((parsed, size))
            self._write([f"{name} {size}"])

    def tell(self, segments: Sequence[tuple[SegmentName, int]], seen: Seen) -> None:
        """What a listing has shown that was not told before."""
        with self._lock:
            self._write([*(f"{name} {size}" for name, size in segments), seen.to_line()])

    def take(self) -> Told:
        """What was added since the last time, for who lists in this process."""
        with self._lock:
            told, self._waiting = self._waiting[-1000:], []
            return Told(told)

    def close(self) -> None:
        with self._lock, suppress(OSError):
            self.path.unlink()

    def _write(self, lines: list[str]) -> None:
        """What cannot be written is missed, and asked of the storage."""
        with suppress(OSError):
            if self.path.stat().st_size > _MOST_BYTES:
                # Another file, so that who reads notices, also if it grows as long as this one.
                begun = self.path.with_suffix(".new")
                begun.touch(0o600)
                begun.replace(self.path)
            with self.path.open("ab", buffering=0) as file:
                file.write("".join(f"{line}\n" for line in lines).encode())


class FeedReader:
    """The reading end, in this or another process."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1
        self._place = 0

    def __call__(self) -> Told:
        """What was told since the last time. A line that is half written comes the next time."""
        segments, seen = [], None
        for line in self._lines():
            if line.startswith(_SEEN):
                with suppress(ValueError):
                    seen = Seen.from_line(line)
                continue
            name, _, size = line.partition(" ")
            parsed = SegmentName.parse(name)
            if parsed is not None and size.isdigit():
                segments.append((parsed, int(size)))
        return Told(segments, seen)

    def _lines(self) -> list[str]:
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
        return lines.decode(errors="replace").splitlines()
