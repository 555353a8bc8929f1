"""What only ``stdout`` does: writing to a pipe that may close."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from penstock.destination import stdout
from penstock.destination.stdout import StdoutDestination, StdoutOptions
from penstock.model.errors import DestinationError
from penstock.model.lsn import Frontier
from penstock.model.watermarks import Watermarks

# Its reader is gone before the first line; exit must be as silent as the error is clear.
_PROGRAM = """
from penstock.destination.stdout import StdoutDestination, StdoutOptions
from penstock.model.errors import DestinationError
from penstock.model.lsn import Frontier
from penstock.model.watermarks import Watermarks
import sys
try:
    StdoutDestination(StdoutOptions(), "p").commit([b"{}" * 2**20], Watermarks(Frontier(1, 2)))
except DestinationError as error:
    print(error.message, "|", error.remedy, file=sys.stderr)
    sys.exit(3)
"""


def test_a_closed_pipe_is_a_clear_error() -> None:
    read, write = os.pipe()
    os.close(read)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            stdout=write,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    finally:
        os.close(write)
    assert done.returncode == 3
    assert "closed the pipe | start the pipeline again" in done.stderr
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_a_full_disk_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with Path("/dev/full").open("wb", buffering=0) as full:
        monkeypatch.setattr(stdout, "sys", SimpleNamespace(stdout=SimpleNamespace(buffer=full)))
        destination = StdoutDestination(StdoutOptions(), "p")
        with pytest.raises(DestinationError, match="No space left"):
            destination.commit([b"x"], Watermarks(Frontier(1, 2)))
