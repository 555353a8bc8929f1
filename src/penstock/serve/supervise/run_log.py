"""What a pipeline's process writes: JSON lines in a file, read as they come, kept bounded."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from penstock.serve.state_folder import write_private

_MOST_BYTES = 8 * 2**20
_KEPT_BYTES = 2 * 2**20
_MOST_AT_ONCE = 2**20
_MOST_LINE = 16 * 2**10
_MOST_ERROR = 4 * 2**10


class RunLog:
    """Reads from where it last stopped; at first, from the last part of what is there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = max(0, self._size() - _KEPT_BYTES // 8)
        # In the middle of a line, most likely.
        self._skips = self._position > 0
        self._rest = b""
        self._in_error = False
        self.last_error = ""
        """What the process last said of an error."""

    def read(self) -> list[dict[str, Any]]:
        """The lines that came since the last call, each with ``level`` and ``message``."""
        size = self._size()
        if size < self._position:
            # Somebody has shortened it.
            self._position, self._rest, self._skips = 0, b"", False
        if size == self._position:
            return []
        with suppress(OSError), self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read(_MOST_AT_ONCE)
            self._position += len(data)
            lines = (self._rest + data).split(b"\n")
            self._rest = lines.pop()[-_MOST_LINE:]
            if self._skips and lines:
                self._skips = False
                lines.pop(0)
            entries = [_entry(line) for line in lines if line.strip()]
            self._notice_error(entries)
            return entries
        return []

    def shorten(self) -> None:
        """Begin it anew where it has grown; its last part is kept beside it. Called between two
        reads, also while the process writes: that appends, wherever the file's end is. A line that
        comes between the last look at the file and its end is lost.
        """
        if self._position <= _MOST_BYTES or self._position < self._size():
            return
        with suppress(OSError), self._path.open("rb") as file:
            file.seek(-_KEPT_BYTES, os.SEEK_END)
            kept = file.read().partition(b"\n")[2]
            write_private(self._path.with_suffix(".log.1"), kept)
            if self._position == self._size():
                os.truncate(self._path, 0)
                # What is left of a line goes on at the new beginning.
                self._position = 0

    def _notice_error(self, entries: list[dict[str, Any]]) -> None:
        for entry in entries:
            message = str(entry["message"])
            if message.startswith("Error: "):
                self.last_error, self._in_error = message.removeprefix("Error: "), True
            elif "event" in entry or "logger" in entry:
                self._in_error = False
            elif self._in_error:
                # An error has several lines; the remedy comes last.
                self.last_error = f"{self.last_error} {message.strip()}"[:_MOST_ERROR]

    def _size(self) -> int:
        with suppress(OSError):
            return self._path.stat().st_size
        return 0


def _entry(line: bytes) -> dict[str, Any]:
    text = line[:_MOST_LINE].decode(errors="replace")
    with suppress(ValueError):
        value = json.loads(text)
        if isinstance(value, dict) and isinstance(value.get("message"), str):
            return {"level": "info", **value}
    level = "error" if text.startswith(("Error: ", "What to do: ")) else "info"
    return {"level": level, "message": text}
