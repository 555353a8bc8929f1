"""Capture and the run that started it, over the pipes between them: lines of JSON both ways.

The run says what its destination holds, as soon as it does. Capture says how it is. Neither waits
for the log's storage, which may be far away; what others may read there is written more rarely.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import starmap
from typing import IO, Any

from penstock.changelog.changelog import ChangeLog, ReaderState
from penstock.model.errors import LogUnavailable
from penstock.source.contract import OnSegment


class Link:
    """Capture's end. One that nobody holds the other end of says nothing and is told nothing."""

    def __init__(self, *, supervised: bool = False) -> None:
        self._supervised = supervised
        self._lock = threading.Lock()
        self.told: dict[str, ReaderState] = {}
        """What the run says of readers; newer than what they have written."""

    def start(self, on_end: Callable[[], None]) -> None:
        """Listen; ``on_end`` is called, by another thread, once the run is gone."""
        if self._supervised:
            threading.Thread(
                target=self._listen, args=(on_end,), name="supervisor's words", daemon=True
            ).start()

    def say(self, report: dict[str, Any]) -> None:
        """For any thread."""
        if self._supervised:
            # A run that is gone does not listen; that is noticed at the other pipe. Not by
            # sys.stdout, which would try again at the end what it could not write.
            with self._lock, suppress(OSError):
                os.write(sys.stdout.fileno(), json.dumps(report).encode() + b"\n")

    def published(self, name: str, size: int) -> None:
        """Say that a segment was added to the log."""
        self.say({"segment": name, "size": size})

    def report(self, log: ChangeLog, report: dict[str, Any]) -> None:
        """Say it to everybody."""
        self.say(report)
        with suppress(LogUnavailable):
            log.set_capture_report(report)

    def _listen(self, on_end: Callable[[], None]) -> None:
        # Not by sys.stdin: a thread that waits there keeps the interpreter from ending.
        begun = b""
        while data := os.read(sys.stdin.fileno(), 2**16):
            *lines, begun = (begun + data).split(b"\n")
            self.told.update(map(from_line, lines))
        on_end()


def to_line(name: str, state: ReaderState) -> bytes:
    return json.dumps({"reader": name, **state.to_json()}).encode() + b"\n"


def from_line(line: bytes) -> tuple[str, ReaderState]:
    value = json.loads(line)
    return value["reader"], ReaderState.from_json(value)


class Teller:
    """The run's end: tells capture of readers, without waiting for it. Only the newest counts."""

    def __init__(self, lines: IO[bytes], told: Mapping[str, ReaderState]) -> None:
        self._lines = lines
        self._waiting = dict(told)
        self._change = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="words to capture", daemon=True)
        self._thread.start()

    def tell(self, reader: str, state: ReaderState) -> None:
        with self._change:
            self._waiting[reader] = state
            self._change.notify()

    def close(self) -> None:
        """Capture stops at the end of what it is told."""
        with self._change:
            self._closed = True
            self._change.notify()

    def _run(self) -> None:
        # One that has ended does not listen. It is started again, and told then.
        with suppress(OSError), self._lines:
            while (told := self._next()) is not None:
                self._lines.write(b"".join(starmap(to_line, told.items())))
                self._lines.flush()

    def _next(self) -> dict[str, ReaderState] | None:
        with self._change:
            self._change.wait_for(lambda: self._waiting or self._closed)
            told, self._waiting = self._waiting, {}
            return told or None


class Reports:
    """The run's end: what capture said last. ``on_segment`` is told of new segments."""

    def __init__(self, lines: IO[bytes], on_segment: OnSegment | None) -> None:
        self.last: dict[str, Any] = {}
        self._on_segment = on_segment
        self._thread = threading.Thread(
            target=self._listen, args=(lines,), name="capture's words", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Until all that it said has been heard. Called once it has ended."""
        self._thread.join()

    def _listen(self, lines: IO[bytes]) -> None:
        with lines:
            for line in lines:
                said = json.loads(line)
                if "segment" not in said:
                    self.last = said
                elif self._on_segment is not None:
                    self._on_segment(said["segment"], said["size"])
