"""Looks after tables that were written to, beside the stream."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection

_log = logging.getLogger(__name__)
# Between two tables, so that a batch that waits for the lock gets it.
_PAUSE_SECONDS = 0.01
_STOP_SECONDS = 30.0


class Maintenance:
    """On a thread of its own, one table after the other: each one holds ``lock`` for itself, so a
    batch waits for one table at most. A table that fails is left to the next time, and keeps none
    of the others from its turn.
    """

    def __init__(self, name: str, lock: threading.RLock) -> None:
        self._name = name
        self._lock = lock
        self._worn: set[int] = set()
        self._ended = time.monotonic()
        self._is_stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def touched(self, tables: Collection[int]) -> None:
        """Remember tables that were written to."""
        with self._lock:
            self._worn.update(tables)

    def start_if_due(
        self, every: float, table: Callable[[int], None], rest: Callable[[], None]
    ) -> None:
        """After so many seconds: ``table`` is called for each one that was written to, then
        ``rest``.
        """
        if self._thread is not None and self._thread.is_alive():
            return
        if not self._worn or time.monotonic() - self._ended < every or self._is_stopped.is_set():
            return
        self._thread = threading.Thread(
            target=self._run, args=(table, rest), name=f"{self._name} maintenance", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Until all that is under way is done."""
        if self._thread is not None:
            self._thread.join()

    def stop(self) -> None:
        """Begin with no further table."""
        self._is_stopped.set()
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)

    def _run(self, table: Callable[[int], None], rest: Callable[[], None]) -> None:
        with self._lock:
            worn = sorted(self._worn)
        for oid in worn:
            if self._is_stopped.wait(_PAUSE_SECONDS):
                return
            with self._lock:
                if self._did(lambda: table(oid)):  # noqa: B023
                    self._worn.discard(oid)
        if not self._is_stopped.wait(_PAUSE_SECONDS):
            with self._lock:
                self._did(rest)
        self._ended = time.monotonic()

    def _did(self, work: Callable[[], None]) -> bool:
        try:
            work()
        except Exception as error:
            _log.warning("maintenance of %s failed: %s", self._name, error)
            return False
        return True
