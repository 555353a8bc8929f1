"""A position that the pipeline's batches must not pass for now.

`penstock verify` compares source and destination at one position L. It asks the pipeline to end a
batch there with an empty file whose name says so, and removes the file once it has its view of the
destination. Who lists the segments sees the file as well, after them: then a batch that was planned
without a barrier holds only what was committed before the barrier came.

A barrier that nobody renews is forgotten by whoever sees it, by his own clock: a verify that died
holds nobody for long, and the clocks of two machines need not agree.
"""

from __future__ import annotations

import re
import threading
import time
import uuid
from types import TracebackType
from typing import Self

from penstock.cadence import paced
from penstock.changelog.changelog import BARRIERS, ChangeLog, Listing

HOLD_SECONDS = paced(30.0)
"""How long a barrier counts that nobody renews."""

# Position, whose it is, how often it was renewed; of several readers, for which.
_NAME = re.compile(rf"{BARRIERS}/([0-9a-f]{{16}})\.[0-9a-f]{{8}}\.\d+(?:@(.+))?", re.ASCII)


class BarrierWatch:
    """Who plans batches has one, and asks it after each listing. ``reader`` is for whom."""

    def __init__(self, log: ChangeLog, reader: str | None = None) -> None:
        self._log = log
        self._reader = reader
        self._first_seen: dict[str, float] = {}

    def held_at(self, listing: Listing, now: float | None = None) -> int | None:
        """The LSN that batches must not pass; None where nothing holds them. A name that cannot be
        read holds nobody: verify notices when the pipeline went past.
        """
        now = time.monotonic() if now is None else now
        self._first_seen = {name: self._first_seen.get(name, now) for name in listing.barriers}
        held = []
        for name, seen in self._first_seen.items():
            if now - seen > HOLD_SECONDS:
                self._log.segments.delete(name)
            elif (match := _NAME.fullmatch(name)) and match[2] in (None, self._reader):
                held.append(int(match[1], 16))
        return min(held, default=None)


class Barrier:
    """Holds the pipeline from ``with`` to the end of the block; renewed by a thread meanwhile.

    With ``reader`` it holds that one alone, of those that read the log.
    """

    def __init__(self, log: ChangeLog, lsn: int, reader: str | None = None) -> None:
        self._suffix = "" if reader is None else f"@{reader}"
        self._files = log.segments.child(BARRIERS)
        self._lsn = lsn
        self._token = uuid.uuid4().hex[:8]
        self._number = 0
        self._written = ""
        self._write_lock = threading.Lock()
        self._done = threading.Event()
        # A daemon: it must not keep a process alive, nor its barrier.
        self._renewal = threading.Thread(target=self._renew, name="barrier", daemon=True)

    def wait_noticed(self) -> None:
        """Until whoever plans batches has seen it, whatever else he is told of the log."""
        time.sleep(self._files.pace.notice)

    def move(self, lsn: int) -> None:
        """Let the pipeline go on, up to ``lsn``."""
        with self._write_lock:
            self._lsn = lsn
            self._write()

    def __enter__(self) -> Self:
        self._write()
        self._renewal.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._done.set()
        self._renewal.join()
        self._files.delete(self._written)

    def _renew(self) -> None:
        while not self._done.wait(HOLD_SECONDS / 3):
            with self._write_lock:
                self._write()

    def _write(self) -> None:
        """The new one before the old one goes: there is never none."""
        before, self._number = self._written, self._number + 1
        self._written = f"{self._lsn:016x}.{self._token}.{self._number}{self._suffix}"
        self._files.write(self._written, b"", durable=False)
        if before:
            self._files.delete(before)
