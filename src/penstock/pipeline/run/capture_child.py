"""The capture process as a child of `penstock run`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from penstock.changelog.changelog import ChangeLog
from penstock.model.error_transport import error_from_json

_STOP_SECONDS = 20.0


class CaptureChild:
    """Starts capture, notices its end, stops it.

    The child watches its standard input: when this process ends, however it ends, so does the
    child. It has a session of its own, so that Ctrl-C reaches only us, and we stop it in order.
    """

    def __init__(self, pipeline_file: Path, log: ChangeLog) -> None:
        self._file = pipeline_file
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None
        self.restarts = -1

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        """Start it, or start it again once it has ended."""
        self.restarts += 1
        self._close_stdin()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "capture", str(self._file), "--supervised"],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def ended(self) -> bool:
        """True once it has ended by itself for a reason that a restart may heal.

        Raises the error with which it gave up.
        """
        if self._process is None or self._process.poll() is None:
            return False
        report = self.report()
        if report.get("state") == "failed":
            raise error_from_json(report)
        return True

    def report(self) -> dict[str, Any]:
        """What this very process last said of itself; empty before it said anything."""
        report = self._log.capture_report() or {}
        return report if report.get("pid") == self.pid else {}

    def stop(self) -> None:
        """Ask it to stop, and insist if it does not."""
        if self._process is None:
            return
        self._close_stdin()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _close_stdin(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
