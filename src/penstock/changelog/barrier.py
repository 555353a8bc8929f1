"""A position that the pipeline's batches must not pass for now.

`penstock verify` compares source and destination at one position L. It asks the pipeline to end a
batch there with a small file in the change log's folder, and removes the file once it has its view
of the destination. The file carries its own end: a verify that died holds nobody for long.
"""

from __future__ import annotations

import json
import threading
import time
from types import TracebackType
from typing import Self

from penstock.changelog.changelog import ChangeLog
from penstock.model.lsn import format_lsn, parse_lsn

BARRIER_FILE = "barrier.json"

HOLD_SECONDS = 30.0
"""How long a barrier counts that nobody renews."""


def held_at(log: ChangeLog, now: float | None = None) -> int | None:
    """The LSN that batches must not pass; None where nothing holds them.

    Who plans a batch lists the log before it asks here: then a batch that was planned without a
    barrier holds only what was committed before the barrier came.

    A file that cannot be read, or that claims to hold for longer than any barrier does (a clock
    that is wrong), holds nobody. Verify notices when the pipeline went past.
    """
    data = log.root.read(BARRIER_FILE)
    if data is None:
        return None
    try:
        value = json.loads(data.to_pybytes())
        lsn, left = parse_lsn(value["lsn"]), value["expires"] - (now or time.time())
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
    return lsn if 0 < left <= 2 * HOLD_SECONDS else None


class Barrier:
    """Holds the pipeline from ``with`` to the end of the block; renewed by a thread meanwhile."""

    def __init__(self, log: ChangeLog, lsn: int) -> None:
        self._log = log
        self._lsn = lsn
        self._write_lock = threading.Lock()
        self._done = threading.Event()
        # A daemon: it must not keep a process alive, nor its barrier.
        self._renewal = threading.Thread(target=self._renew, name="barrier", daemon=True)

    def move(self, lsn: int) -> None:
        """Let the pipeline go on, up to ``lsn``."""
        with self._write_lock:
            self._lsn = lsn
            self._write()

    def __enter__(self) -> Self:
        self._write()
        self._renewal.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._done.set()
        self._renewal.join()
        self._log.root.delete(BARRIER_FILE)

    def _renew(self) -> None:
        while not self._done.wait(HOLD_SECONDS / 3):
            with self._write_lock:
                self._write()

    def _write(self) -> None:
        value = {"lsn": format_lsn(self._lsn), "expires": time.time() + HOLD_SECONDS}
        self._log.root.write(BARRIER_FILE, json.dumps(value).encode(), durable=False)
