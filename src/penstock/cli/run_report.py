"""What `penstock run` says while it runs: one line now and then."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.changelog.changelog import ChangeLog
from penstock.model.lsn import format_lsn, parse_lsn
from penstock.model.quantity_text import bytes_text
from penstock.pipeline.run.batch_committer import Delivered

_INTERVAL_SECONDS = 10.0


class RunReport:
    """Counts batches and says, at most every ten seconds, where the destination stands."""

    def __init__(self, log: ChangeLog, say: Callable[[str], None]) -> None:
        self._log = log
        self._say = say
        self._batches = 0
        self._last = time.monotonic()

    def __call__(self, delivered: Delivered) -> None:
        self._batches += 1
        now = time.monotonic()
        if now - self._last < _INTERVAL_SECONDS and self._batches > 1:
            return
        self._last = now
        report = self._log.capture_report() or {}
        wal_end = parse_lsn(report["wal_end"]) if "wal_end" in report else 0
        behind = max(0, wal_end - delivered.frontier.end_lsn)
        self._say(
            f"delivered up to {format_lsn(delivered.frontier.end_lsn)}, "
            f"{bytes_text(behind)} of WAL behind; {self._batches} batches so far"
        )
