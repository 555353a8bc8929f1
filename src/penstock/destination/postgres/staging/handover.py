"""Rows on their way from tasks to the driver, which copies them straight into their targets.

What a task stages is written twice at the destination: into a staging table, then into the target.
Rows that are only inserted need not be. A task leaves them in a file as lines of COPY, and the
driver copies these into the target in the transaction that moves the position.

That takes a folder that both see. Tasks on other machines do not find the driver's mark in it, and
stage as ever.
"""

from __future__ import annotations

import fcntl
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from penstock.model.errors import BatchAgain

Ints = npt.NDArray[np.int64]

_PREFIX = "penstock-rows-"
_MARK = "mark"
_LOCK = "lock"
_PIECE_BYTES = 2**20
# Each row's commit and ordinal stand before all lines.
_POSITION_BYTES = 16


@dataclass(frozen=True)
class Handed:
    """Where the rows of one part lie: their positions, then ``size`` bytes of lines."""

    file: str
    start: int
    rows: int
    size: int

    def lines(self) -> Iterator[memoryview]:
        """The lines, some at a time, each time in the same place in memory.

        Raises BatchAgain where they are gone.
        """
        left = self.size
        buffer = memoryview(bytearray(min(left, _PIECE_BYTES)))
        with self._opened() as file:
            file.seek(self.start + self.rows * _POSITION_BYTES)
            while left:
                count = file.readinto(buffer[:left])  # type: ignore[attr-defined]
                if not count:
                    raise _gone(self.file)
                left -= count
                yield buffer[:count]

    def read(self) -> bytes:
        """All lines at once. Raises BatchAgain where they are gone."""
        return b"".join(map(bytes, self.lines()))

    def positions(self) -> tuple[Ints, Ints]:
        """Commit and ordinal of each row. Raises BatchAgain where they are gone."""
        with self._opened() as file:
            file.seek(self.start)
            data = file.read(self.rows * _POSITION_BYTES)
        if len(data) < self.rows * _POSITION_BYTES:
            raise _gone(self.file)
        found = np.frombuffer(data, np.int64)
        return found[: self.rows], found[self.rows :]

    def _opened(self) -> BinaryIO:
        try:
            return Path(self.file).open("rb", buffering=0)
        except OSError as error:
            raise _gone(self.file) from error


def _gone(file: str) -> BatchAgain:
    return BatchAgain(
        f"rows that a task had handed over are gone from {file}; the batch is made again",
        remedy="nothing to do, unless it happens all the time: then something empties the folder "
        "for temporary files (TMPDIR) while the pipeline runs",
    )


@dataclass(frozen=True)
class HandoverPlace:
    """A task's side: where it leaves rows. Picklable."""

    folder: str
    mark: str

    def is_here(self) -> bool:
        """Whether the driver sees what is written there."""
        try:
            return Path(self.folder, os.pardir, _MARK).read_text() == self.mark
        except OSError:
            return False

    def begin(self) -> HandedFile:
        """A new file. Raises OSError."""
        return HandedFile(Path(self.folder, secrets.token_hex(8)))


class HandedFile:
    """One run's rows, part after part. Raises OSError."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = path.open("xb", buffering=0)
        self._size = 0

    def add(self, commit_lsn: Ints, ordinal: Ints, lines: Iterator[memoryview]) -> Handed:
        start = self._size
        self._write(memoryview(np.concatenate([commit_lsn, ordinal]).astype(np.int64).tobytes()))
        first = self._size
        for some in lines:
            self._write(some)
        return Handed(str(self._path), start, len(commit_lsn), self._size - first)

    def close(self) -> None:
        self._file.close()

    def give_up(self) -> None:
        self._file.close()
        with suppress(OSError):
            self._path.unlink()

    def _write(self, data: memoryview) -> None:
        while data:
            written = self._file.write(data)
            self._size += written
            data = data[written:]


class Handover:
    """The driver's side: a folder of its own, which goes with it. Readable by its user alone."""

    def __init__(self) -> None:
        self._mark = secrets.token_hex(16)
        self._folder: Path | None = None
        self._lock: int | None = None

    def place(self, lane: int) -> HandoverPlace | None:
        """Where tasks leave the rows of a batch; empty. None where no folder can be made.

        Batches take turns with lanes: what lies in this one belongs to a batch that is over.
        """
        self.empty(lane)
        try:
            folder = self._open() / str(lane)
            folder.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            return None
        return HandoverPlace(str(folder), self._mark)

    def empty(self, lane: int) -> None:
        """Remove what lies in a lane, once its batch is over: rows are not left lying about."""
        if self._folder is not None:
            shutil.rmtree(self._folder / str(lane), ignore_errors=True)

    def close(self) -> None:
        folder, lock, self._folder, self._lock = self._folder, self._lock, None, None
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        if lock is not None:
            os.close(lock)

    def _open(self) -> Path:
        if self._folder is None or not self._folder.exists():
            self.close()
            _remove_left_over(Path(tempfile.gettempdir()))
            folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
            # Held before it has its name: who finds it free takes the folder for a dead driver's.
            unnamed = folder / "new"
            self._lock = os.open(unnamed, os.O_CREAT | os.O_RDWR, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            unnamed.rename(folder / _LOCK)
            (folder / _MARK).write_text(self._mark)
            self._folder = folder
        return self._folder


def _remove_left_over(parent: Path) -> None:
    """Folders of drivers that were killed, as far as they are ours."""
    for lock in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        with suppress(OSError):
            if lock.parent.lstat().st_uid != os.getuid():
                continue
            found = os.open(lock, os.O_RDWR)
            try:
                fcntl.flock(found, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(found)
