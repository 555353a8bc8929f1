"""What happened lately, for the page and for streams: a bounded list that grows at its end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

_MOST_EVENTS = 2_000
_MOST_AT_ONCE = 200
MISSED = "events_missed"
_OWN = frozenset({"time", "level", "message", "event", "pipeline", "logger"})


@dataclass(frozen=True)
class Event:
    """``number`` grows by one with each event of the server."""

    number: int
    at: str
    pipeline: str
    level: str
    event: str
    message: str
    fields: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "id": self.number,
            "at": self.at,
            "pipeline": self.pipeline,
            "level": self.level,
            "event": self.event,
            "message": self.message,
            "fields": self.fields,
        }


class Events:
    """The last events of each pipeline. May be used by any thread."""

    def __init__(self, most: int = _MOST_EVENTS) -> None:
        self._most = most
        self._lock = threading.Lock()
        # Of the clock, so that a client which saw a server before this one misses nothing.
        self._number = int(time.time() * 1000)
        self._kept: dict[str, deque[Event]] = {}
        # The last one of each pipeline that is not kept any more.
        self._dropped: dict[str, int] = {}
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def add(self, pipeline: str, line: dict[str, Any]) -> None:
        """A line that a pipeline's process has logged."""
        fields = {key: value for key, value in line.items() if key not in _OWN}
        self._append(
            pipeline,
            str(line.get("time") or datetime.now(UTC).isoformat(timespec="milliseconds")),
            str(line.get("level", "info")),
            str(line.get("event", "log")),
            str(line["message"]),
            fields,
        )

    def tell(
        self, pipeline: str, event: str, message: str, *, level: str = "info", **fields: Any
    ) -> None:
        """Something that the server itself did or saw."""
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        self._append(pipeline, at, level, event, message, fields)

    def latest(
        self, pipeline: str | None = None, *, after: int = 0, most: int = _MOST_AT_ONCE
    ) -> list[Event]:
        """The last ones, oldest first; of one pipeline, or of all."""
        with self._lock:
            return self._behind(pipeline, after)[-most:]

    def next(self, pipeline: str | None, *, after: int, most: int = _MOST_AT_ONCE) -> list[Event]:
        """Those that come next behind ``after``, oldest first. Where some of them are not kept any
        more, one of the kind MISSED stands for them, in their place.
        """
        with self._lock:
            missed = [
                _missed(name, number)
                for name, number in self._dropped.items()
                if number > after and pipeline in (None, name)
            ]
            found = [*missed, *self._behind(pipeline, after)]
        return sorted(found, key=lambda event: event.number)[:most]

    def _behind(self, pipeline: str | None, after: int) -> list[Event]:
        if pipeline is not None:
            return [e for e in self._kept.get(pipeline, ()) if e.number > after]
        found = [e for kept in self._kept.values() for e in kept if e.number > after]
        return sorted(found, key=lambda event: event.number)

    async def follow(
        self, pipeline: str | None, after: int | None
    ) -> AsyncGenerator[list[Event], None]:
        """Events behind ``after`` as they come, all of them; an empty list now and then, as a sign
        of life. None: begin with the last ones.
        """
        waiting = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.add(waiting)
        try:
            if after is None:
                first = self.latest(pipeline)
                after = first[-1].number if first else 0
                yield first
            while True:
                waiting[1].clear()
                found = self.next(pipeline, after=after)
                yield found
                if found:
                    # There may be more of them.
                    after = found[-1].number
                    continue
                try:
                    await asyncio.wait_for(waiting[1].wait(), 15.0)
                except TimeoutError:
                    continue
        finally:
            with self._lock:
                self._waiting.discard(waiting)

    def _append(
        self, pipeline: str, at: str, level: str, event: str, message: str, fields: dict[str, Any]
    ) -> None:
        with self._lock:
            self._number += 1
            kept = self._kept.setdefault(pipeline, deque())
            if len(kept) >= self._most:
                self._dropped[pipeline] = kept.popleft().number
            kept.append(Event(self._number, at, pipeline, level, event, message, fields))
            waiting = list(self._waiting)
        for loop, event_set in waiting:
            try:
                loop.call_soon_threadsafe(event_set.set)
            except RuntimeError:
                # Its loop has ended, and so has who waited.
                continue


def _missed(pipeline: str, number: int) -> Event:
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    text = "Events before this one came faster than they were read, and are not kept any more."
    return Event(number, at, pipeline, "warning", MISSED, text)
