"""The capture process as a child of `penstock run`."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from penstock.changelog.changelog import ReaderState
from penstock.model.error_transport import error_from_json
from penstock.source.capture.link import Reports, Teller
from penstock.source.contract import Capture, OnSegment

_STOP_SECONDS = 20.0


class CaptureChild(Capture):
    """Starts capture, notices its end, stops it.

    The child watches its standard input: when this process ends, however it ends, so does the
    child. It has a session of its own, so that Ctrl-C reaches only us, and we stop it in order.
    """

    def __init__(
        self,
        pipeline_file: Path,
        on_segment: OnSegment | None = None,
        *,
        stands_by: bool = False,
    ) -> None:
        """``stands_by``: while another process captures for the pipeline, it waits for its end."""
        self._options = ["--supervised", *(["--stand-by"] if stands_by else [])]
        self._on_segment = on_segment
        self._file = pipeline_file
        self._process: subprocess.Popen[bytes] | None = None
        self._teller: Teller | None = None
        self._reports: Reports | None = None
        self._told: dict[str, ReaderState] = {}
        self._lock = threading.Lock()
        self.restarts = -1

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        self.restarts += 1
        process = subprocess.Popen(
            [sys.executable, "-m", "penstock", "capture", str(self._file), *self._options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        assert process.stdin is not None  # noqa: S101 (they are pipes)
        assert process.stdout is not None  # noqa: S101
        with self._lock:
            if self._teller is not None:
                self._teller.close()
            self._teller = Teller(process.stdin, self._told)
        self._process, self._reports = process, Reports(process.stdout, self._on_segment)

    def tell(self, reader: str, state: ReaderState) -> None:
        with self._lock:
            self._told[reader] = state
            if self._teller is not None:
                self._teller.tell(reader, state)

    def ended(self) -> bool:
        if self._process is None or self._process.poll() is None:
            return False
        if self._reports is not None:
            self._reports.wait()
        report = self.report()
        if report.get("state") == "failed":
            raise error_from_json(report)
        return True

    def report(self) -> dict[str, Any]:
        return self._reports.last if self._reports is not None else {}

    def stop(self) -> None:
        if self._process is None or self._teller is None or self._reports is None:
            return
        self._teller.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reports.wait()
