"""What `penstock run` says while it runs: one line now and then."""

from __future__ import annotations

import logging
import time

from penstock.changelog.changelog import ChangeLog
from penstock.model.lsn import format_lsn, parse_lsn
from penstock.model.quantity_text import bytes_text
from penstock.pipeline.run.batch_committer import Delivered

_INTERVAL_SECONDS = 10.0

_log = logging.getLogger(__name__)


class RunReport:
    """Counts batches and logs, at most every ten seconds, where the destination stands."""

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
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
        end = format_lsn(delivered.frontier.end_lsn)
        _log.info(
            "delivered up to %s, %s of WAL behind; %s batches so far",
            end,
            bytes_text(behind),
            self._batches,
            extra={"event": "delivered", "lsn": end, "behind_bytes": behind},
        )
