"""One `penstock run` as a process of its own, which outlives the server that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import IO

from penstock.config import PipelineConfig
from penstock.destination.registry import destination_class
from penstock.model.errors import ConfigError, PenstockError
from penstock.operations.process_identity import ProcessIdentity


def start_run(views: Sequence[PipelineConfig], file: Path, log: Path) -> subprocess.Popen[bytes]:
    """Start it with all its destinations, and JSON lines into ``log``. It has a session of its own:
    neither a signal to the server nor the server's end reaches it.

    Raises ConfigError for a destination that writes to the standard output, which has no reader.
    """
    for view in views:
        if destination_class(view.destination_type).uses_stdout:
            raise ConfigError(
                f"Pipeline {view.delivery} writes to standard output (destination "
                f"{view.destination_type}), which nobody would read here.",
                remedy=f"Start it in a terminal: penstock run {file}",
            )
    command = [sys.executable, "-m", "penstock", "--log-format", "json", "run", str(file)]
    return start_detached(command, log, log)


def start_detached(
    command: list[str], out: Path, err: Path, *, stdin: int = subprocess.DEVNULL
) -> subprocess.Popen[bytes]:
    """Start a process that is not ours to end: it appends to files, and reads nothing unless it is
    given something.
    """
    with _appended(out) as output, _appended(err) as error:
        return subprocess.Popen(
            command,
            stdin=stdin,
            stdout=output,
            stderr=error,
            start_new_session=True,
        )


def _appended(path: Path) -> IO[bytes]:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")


def send_signal(process: ProcessIdentity, number: signal.Signals) -> bool:
    """Signal just that process; whether it lived. Raises PenstockError where we may not."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    try:
        # Asked after it was opened: its number can belong to nobody else from here on.
        if not process.lives:
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except ProcessLookupError:
        return False
    except PermissionError:
        raise PenstockError(
            f"Process {process.pid} belongs to another user, so it cannot be stopped from here.",
            remedy="Stop it as its owner, or run the server as that user.",
        ) from None
    finally:
        os.close(descriptor)
