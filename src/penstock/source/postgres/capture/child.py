"""The capture process as a child of `penstock run`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from penstock.changelog.changelog import ChangeLog
from penstock.model.error_transport import error_from_json
from penstock.source.contract import Capture

_STOP_SECONDS = 20.0


class CaptureChild(Capture):
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
        self.restarts += 1
        self._close_stdin()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "capture", str(self._file), "--supervised"],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )

    def ended(self) -> bool:
        if self._process is None or self._process.poll() is None:
            return False
        report = self.report()
        if report.get("state") == "failed":
            raise error_from_json(report)
        return True

    def report(self) -> dict[str, Any]:
        report = self._log.capture_report() or {}
        return report if report.get("pid") == self.pid else {}

    def stop(self) -> None:
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
