"""A capture process that somebody else has started, perhaps on another machine."""

from __future__ import annotations

import time
from typing import Any

from penstock.changelog.changelog import ChangeLog, ReaderState
from penstock.source.contract import Capture

_LOOK_SECONDS = 5.0


class CaptureElsewhere(Capture):
    """All that is known of it is what it writes to the log: `penstock capture` next to the
    database, `penstock run --no-capture` next to Spark.
    """

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self._report: dict[str, Any] = {}
        self._next = 0.0

    def start(self) -> None:
        """Somebody else's affair."""

    def ended(self) -> bool:
        """Health tells that it does not capture; it is not ours to start."""
        return False

    def report(self) -> dict[str, Any]:
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + _LOOK_SECONDS
            self._report = self._log.capture_report() or {}
        return self._report

    def tell(self, reader: str, state: ReaderState) -> None:
        """It reads what is written to the log."""

    def stop(self) -> None:
        """Not ours."""


class CaptureShared(Capture):
    """A child that captures unless somebody else does: each destination of a pipeline may run in a
    command of its own, and whichever comes first captures for all. When that one ends, another
    takes over.
    """

    def __init__(self, own: Capture, log: ChangeLog) -> None:
        self._own = own
        self._others = CaptureElsewhere(log)

    def start(self) -> None:
        self._own.start()

    def ended(self) -> bool:
        return self._own.ended()

    def report(self) -> dict[str, Any]:
        own = self._own.report()
        return self._others.report() if own.get("state") in (None, "standing by") else own

    def tell(self, reader: str, state: ReaderState) -> None:
        self._own.tell(reader, state)

    def stop(self) -> None:
        self._own.stop()
