"""What ties the process of one destination to the command that started it: a socket between them.

The process says over it where its metrics are and why it gave up. When the other end closes, it
ends: in order where it can, and in any case soon, so that whoever starts the command again meets no
writer of the one before.
"""

from __future__ import annotations

import json
import os
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from penstock.model.error_transport import error_to_json
from penstock.model.errors import PenstockError

END_SECONDS = 60.0
"""How long a process may take to end in order. What it does not finish is delivered again."""


class Tether:
    """The end of the process that was started. ``descriptor`` is what it was given."""

    def __init__(self, descriptor: int) -> None:
        # Spark's processes and holders of snapshots must not have it: some outlive us.
        os.set_inheritable(descriptor, False)
        self._socket = socket.socket(fileno=descriptor)
        self._lock = threading.Lock()

    def hold(self, on_end: Callable[[], None]) -> None:
        """Call ``on_end``, by a thread, once the other end is gone; end the process after that."""
        threading.Thread(
            target=self._watch, args=(on_end,), name="penstock-tether", daemon=True
        ).start()

    def say_metrics(self, url: str) -> None:
        self._say({"metrics": url})

    def say_failed(self, error: PenstockError) -> None:
        self._say({"failed": error_to_json(error)})

    def _say(self, value: dict[str, Any]) -> None:
        with self._lock, suppress(OSError):
            self._socket.sendall(json.dumps(value).encode() + b"\n")

    def _watch(self, on_end: Callable[[], None]) -> None:
        # Nothing is ever said to us: the only news is the end.
        with suppress(OSError):
            while self._socket.recv(1024):
                pass
        on_end()
        threading.Event().wait(END_SECONDS)
        os._exit(1)
