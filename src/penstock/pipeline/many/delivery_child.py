"""A process that is tied to the command that started it, as that command sees it."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from penstock.model.error_transport import error_from_json
from penstock.model.errors import PenstockError
from penstock.pipeline.many.tether import END_SECONDS

_KILL_SECONDS = END_SECONDS + 5.0


class TiedProcess:
    """A command with the option --tether, tied to this process by a socket (tether.py).

    It has a session of its own, so that Ctrl-C reaches only us, and we stop it in order.
    """

    def __init__(self, name: str, command: Sequence[str]) -> None:
        self.name = name
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._listener: threading.Thread | None = None
        self._failure: PenstockError | None = None

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def start(self) -> None:
        if self._socket is not None:
            self._socket.close()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [*self._command, "--tether", str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        self._failure, self._socket = None, ours
        self._listener = threading.Thread(
            target=self._listen, args=(ours,), name=f"words of {self.name}", daemon=True
        )
        self._listener.start()

    def ended(self) -> int | None:
        """Its exit code; None while it runs, or was never started."""
        if self._process is None or (code := self._process.poll()) is None:
            return None
        if self._listener is not None:
            self._listener.join()
        return code

    @property
    def failure(self) -> PenstockError | None:
        """Why it gave up, if it has said so."""
        return self._failure

    def ask_to_stop(self) -> None:
        """It ends once our end of the socket is closed for it."""
        if self._socket is not None:
            try:
                self._socket.shutdown(socket.SHUT_WR)
            except OSError:
                return  # it has ended

    def wait(self, deadline: float) -> None:
        """Until it has ended; ``deadline`` is one of time.monotonic(), after which it is killed."""
        if self._process is None or self._socket is None:
            return
        try:
            self._process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self.ended()
        self._socket.close()

    def _listen(self, ours: socket.socket) -> None:
        with ours.makefile("rb") as lines:
            for line in lines:
                said = json.loads(line)
                if "metrics" in said:
                    self.has_metrics(said["metrics"])
                elif "failed" in said:
                    self._failure = error_from_json(said["failed"])

    def has_metrics(self, url: str) -> None:
        """Where its metrics are. Called by a thread of its own."""


class DeliveryChild(TiedProcess):
    """`penstock run FILE --only NAME`."""

    def __init__(
        self, file: Path, name: str, *options: str, on_metrics: Callable[[str, str], None]
    ) -> None:
        """``on_metrics`` is told the name, and where the metrics are, by a thread of its own."""
        command = [sys.executable, "-m", "penstock", "run", str(file), "--only", name]
        super().__init__(name, [*command, "--no-capture", *options])
        self._on_metrics = on_metrics

    def has_metrics(self, url: str) -> None:
        self._on_metrics(self.name, url)


def stop_all(children: Sequence[TiedProcess]) -> None:
    """Let all of them end, side by side."""
    for child in children:
        child.ask_to_stop()
    deadline = time.monotonic() + _KILL_SECONDS
    for child in children:
        child.wait(deadline)
