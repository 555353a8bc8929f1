"""Who did what: one JSON line for every command, and for every request that was refused.

They are two files. Anybody who can connect can be refused, as often as they like: what people did
must not be pushed out by that.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

_MOST_BYTES = 16 * 2**20
_MOST_TEXT = 500
_MOST_REFUSALS = 50
"""A second: a flood of requests fills no disk."""

_log = logging.getLogger(__name__)


class Audit:
    """Appends to files that their owner alone can read; of each, the one before it is kept beside
    it.
    """

    def __init__(self, commands: Path, refusals: Path) -> None:
        self._commands, self._refused = commands, refusals
        self._lock = threading.Lock()
        self._second, self._refusals = 0, 0

    def command(self, who: str, role: str, address: str, action: str, **fields: Any) -> None:
        """Somebody asked for a change; ``outcome`` in the fields says what became of it."""
        entry = {"kind": "command", "who": who, "role": role, "from": address, "action": action}
        self._write(self._commands, {**entry, **fields})

    def refused(self, address: str, method: str, path: str, reason: str, who: str = "") -> None:
        """A request that was not let in."""
        with self._lock:
            second = int(time.monotonic())
            if second != self._second:
                self._second, self._refusals = second, 0
            self._refusals += 1
            if self._refusals > _MOST_REFUSALS:
                return
        self._write(
            self._refused,
            {
                "kind": "refused",
                "who": who,
                "from": address,
                "method": method[:20],
                "path": path[:_MOST_TEXT],
                "reason": reason,
            },
        )

    def _write(self, path: Path, entry: dict[str, Any]) -> None:
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = json.dumps({"at": at, **entry}, default=str, ensure_ascii=True) + "\n"
        with self._lock:
            try:
                if path.exists() and path.stat().st_size > _MOST_BYTES:
                    path.replace(path.with_suffix(".log.1"))
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                descriptor = os.open(path, flags, 0o600)
                try:
                    os.write(descriptor, line.encode())
                finally:
                    os.close(descriptor)
            except OSError as error:
                _log.error(
                    "the audit log cannot be written: %s", error, extra={"event": "audit_failed"}
                )
