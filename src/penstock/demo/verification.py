"""`penstock verify` as a process of its own, the way an operator runs it beside the pipeline."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from penstock.model.errors import PenstockError

_STOP_SECONDS = 10.0


class Verification:
    """One run of the command. What it writes is kept in ``folder``.

    ``wait`` is how many seconds the pipeline may take to get to the position of the comparison.

    A process can be ended at any moment, which a call could not: on Ctrl-C it must not be left
    waiting for a pipeline that is gone, nor start one itself. It has a session of its own, so that
    Ctrl-C reaches only us; when we are killed, it fails with the servers, which end with us.
    """

    def __init__(self, pipeline_file: Path, folder: Path, wait: float) -> None:
        self._command = ["verify", str(pipeline_file), "--wait", str(wait)]
        self._report = folder / "verify.txt"
        self._said = folder / "verify.err"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._report.open("wb") as report, self._said.open("wb") as said:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock", *self._command],
                stdin=subprocess.DEVNULL,
                stdout=report,
                stderr=said,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def result(self) -> tuple[bool, tuple[str, ...]]:
        """Whether all is equal, and its report, once it has ended.

        Raises PenstockError if it ended without a report.
        """
        lines = tuple(self._report.read_text().splitlines())
        if self._process is None or not lines:
            raise PenstockError(
                f"penstock verify ended without a report: {self._said.read_text().strip()}",
                remedy="Its message above names the cause.",
            )
        return self._process.returncode == 0, lines

    def stop(self) -> None:
        """End it if it has not ended."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
