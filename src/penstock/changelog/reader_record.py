"""What a reader's destination holds, said to all who have to know."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from penstock.changelog.changelog import ChangeLog, ReaderState
from penstock.model.errors import DestinationUnavailable, LogUnavailable
from penstock.model.lsn import Frontier
from penstock.model.source_identity import SourceIdentity

Listener = Callable[[str, ReaderState], None]


class ReaderRecord:
    """Tells a capture process that it knows of at once, and writes to the log's storage as often as
    its pace allows. For any thread.
    """

    def __init__(self, log: ChangeLog, reader: str) -> None:
        self._log = log
        self._reader = reader
        self._listener: Listener | None = None
        self._lock = threading.Lock()
        self._said: ReaderState | None = None
        self.begin: Frontier | None = None
        """Where the reader began; None for the slot's beginning."""
        self._known: ReaderState | None = None
        """What the storage has, as far as we know."""
        self._is_written = True
        self._next_write = 0.0

    def listen(self, listener: Listener) -> None:
        """Let ``listener`` hear what was said last, and whatever is said from now on."""
        with self._lock:
            self._listener = listener
            if self._said is not None:
                listener(self._reader, self._said)

    def say(
        self,
        frontier: Frontier,
        wanted_lsn: int,
        source: SourceIdentity | None,
        stream: Frontier | None = None,
        *,
        durable: bool,
    ) -> None:
        """``stream`` is where the reader's stream is, if that is further on.

        ``durable``: nobody else knows it, so it is written now. Raises DestinationUnavailable
        where another driver has said more since we looked: what it delivered may be gone from the
        log by now.
        """
        with self._lock:
            if durable and (found := self._overtaken(frontier)):
                raise DestinationUnavailable(
                    f"another driver of {self._reader} ({found.by}) has brought the destination to "
                    f"{found.frontier} meanwhile; going on from there"
                )
            self._said = ReaderState(
                frontier, wanted_lsn, time.time(), source, begin=self.begin, stream=stream
            )
            self._is_written = False
            if durable or self._is_due():
                self._write(durable=durable)
            if self._listener is not None:
                self._listener(self._reader, self._said)

    def look(self) -> None:
        """Called before anybody asks where the reader is, to go on from there."""
        with self._lock:
            self._known = self._log.reader(self._reader)

    def is_overtaken(self, frontier: Frontier) -> bool:
        """Whether another driver has said more than this since we looked."""
        with self._lock:
            return self._overtaken(frontier) is not None

    def _overtaken(self, frontier: Frontier) -> ReaderState | None:
        found = self._log.reader(self._reader)
        is_news = found is not None and found != self._known
        return found if is_news and found is not None and found.frontier > frontier else None

    def keep(self) -> None:
        """Called often: writes what has waited long enough."""
        with self._lock:
            if not self._is_written and self._is_due():
                self._write(durable=False)

    def close(self) -> None:
        """Write what waits."""
        with self._lock:
            if not self._is_written:
                self._write(durable=False)

    def _is_due(self) -> bool:
        """Without a pace always: clocks of two cores may differ, so that ours seems to go back."""
        return not self._log.readers.pace.readers or time.monotonic() >= self._next_write

    def _write(self, *, durable: bool) -> None:
        """What others know as well may wait until the storage answers again."""
        said = self._said
        assert said is not None  # noqa: S101 (called once something was said)
        self._next_write = time.monotonic() + self._log.readers.pace.readers
        try:
            self._known = self._log.set_reader(
                self._reader,
                said.frontier,
                said.wanted_lsn,
                said.source,
                said.begin,
                said.stream,
                durable=durable,
            )
        except LogUnavailable:
            if durable:
                raise
        else:
            self._is_written = True
