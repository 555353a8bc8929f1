"""Metrics over time in bounded memory: an hour in steps of seconds, a day in steps of minutes."""

from __future__ import annotations

import math
import threading
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

COLUMNS = (
    "received_per_second",
    "delivered_per_second",
    "copied_per_second",
    "lag_bytes",
    "lag_seconds",
    "log_bytes",
    "unconfirmed_bytes",
    "batches_per_second",
    "batch_seconds",
    "commit_seconds",
)
"""What each point holds beside its time."""

_WIDTH = 1 + len(COLUMNS)
_FINE_POINTS = 1_800
_COARSE_SECONDS = 60.0
_COARSE_POINTS = 1_440
_MOST_GAP = 30.0


@dataclass(frozen=True)
class Point:
    """A moment. Rates and times are over the time since the point before it."""

    at: float
    values: Mapping[str, float]


class _Ring:
    """The last points, as plain numbers; it takes its memory when the first one comes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._data = array("d")
        self._next = 0

    def add(self, row: list[float]) -> None:
        if len(self._data) < self._most * _WIDTH:
            self._data.extend(row)
        else:
            start = self._next * _WIDTH
            self._data[start : start + _WIDTH] = array("d", row)
        self._next = (self._next + 1) % self._most

    def rows(self, since: float) -> list[list[float]]:
        count = len(self._data) // _WIDTH
        order = range(count) if count < self._most else self._turned(count)
        starts = (index * _WIDTH for index in order)
        return [
            self._data[start : start + _WIDTH].tolist()
            for start in starts
            if self._data[start] >= since
        ]

    def _turned(self, count: int) -> list[int]:
        return [(self._next + index) % count for index in range(count)]


class Series:
    """One pipeline's points. May be used by any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fine, self._coarse = _Ring(_FINE_POINTS), _Ring(_COARSE_POINTS)
        self._minute: list[list[float]] = []
        self._last: tuple[float, Mapping[str, Any]] | None = None
        self.latest: Point | None = None

    def add(self, at: float, summary: Mapping[str, Any]) -> None:
        """What the pipeline said at ``at``. The first of a run only begins the counting."""
        with self._lock:
            before, self._last = self._last, (at, summary)
            if (
                before is None
                or not 0 < at - before[0] <= _MOST_GAP
                or _is_new_run(*before, summary)
            ):
                return
            values = _values(at - before[0], before[1], summary)
            row = [at, *(values[column] for column in COLUMNS)]
            self._fine.add(row)
            self.latest = Point(at, values)
            if self._minute and at - self._minute[0][0] >= _COARSE_SECONDS:
                self._coarse.add(_mean(self._minute))
                self._minute = []
            self._minute.append(row)

    def ended(self) -> None:
        """The pipeline does not run: what it said last says nothing of now."""
        with self._lock:
            self._last = self.latest = None

    def points(self, since: float, most: int) -> list[Point]:
        """Oldest first, at most ``most``: neighbours are put together where there are more."""
        with self._lock:
            rows = self._fine.rows(since)
            begin = rows[0][0] if rows else math.inf
            older = [row for row in self._coarse.rows(since) if row[0] < begin]
        rows = older + rows
        if len(rows) > most:
            step = math.ceil(len(rows) / most)
            rows = [_mean(rows[index : index + step]) for index in range(0, len(rows), step)]
        return [Point(row[0], dict(zip(COLUMNS, row[1:], strict=True))) for row in rows]


def _is_new_run(_at: float, before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Counters begin at 0 again when the pipeline starts again."""
    return bool(now["delivered"] < before["delivered"] or now["received"] < before["received"])


def _values(seconds: float, before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, float]:
    def grown(key: str) -> float:
        return max(0.0, float(now[key]) - float(before[key]))

    batches = grown("batches")
    each = batches or 1.0
    return {
        "received_per_second": grown("received") / seconds,
        "delivered_per_second": grown("delivered") / seconds,
        "copied_per_second": grown("copied") / seconds,
        "lag_bytes": float(now["lag_bytes"]),
        "lag_seconds": float(now["lag_seconds"]),
        "log_bytes": float(now["log_bytes"]),
        "unconfirmed_bytes": float(now["unconfirmed_bytes"]),
        "batches_per_second": batches / seconds,
        "batch_seconds": grown("batch_seconds") / each,
        "commit_seconds": grown("commit_seconds") / each,
    }


def _mean(rows: list[list[float]]) -> list[float]:
    return [sum(column) / len(rows) for column in zip(*rows, strict=True)]
