"""Metrics over time, bounded: an hour in steps of seconds, a day in steps of minutes. The day is on
disk as well, so that a server which starts anew goes on where the one before it ended.
"""

from __future__ import annotations

import logging
import math
import os
import sys
import threading
from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from penstock.serve.state_folder import write_private

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
_ROW_BYTES = 8 * _WIDTH
# Another version of Penstock may have other columns.
_HEADER = f"penstock series 1 {sys.byteorder} at {' '.join(COLUMNS)}\n".encode()
_FINE_POINTS = 1_800
_COARSE_SECONDS = 60.0
_COARSE_POINTS = 1_440
_MOST_GAP = 30.0


_log = logging.getLogger(__name__)


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


class SeriesFile:
    """The minutes of one series on disk: rows of numbers of fixed width, appended, and written anew
    with the last day alone when there are twice as many. What is not such rows is begun anew: it is
    history, and nobody waits for it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> list[list[float]]:
        """Those of the last day, oldest first."""
        try:
            data = self._path.read_bytes()
        except OSError:
            return []
        if not data.startswith(_HEADER):
            return []
        numbers = array("d")
        # A server that died may have left a part of a row.
        whole = (len(data) - len(_HEADER)) // _ROW_BYTES * _ROW_BYTES
        numbers.frombytes(data[len(_HEADER) : len(_HEADER) + whole])
        rows = [
            numbers[start : start + _WIDTH].tolist() for start in range(0, len(numbers), _WIDTH)
        ]
        # Times grow: what does not was written by a machine that had another time, or is damaged.
        kept: list[list[float]] = []
        for row in rows[-_COARSE_POINTS:]:
            if all(map(math.isfinite, row)) and (not kept or row[0] > kept[-1][0]):
                kept.append(row)
        return kept

    def add(self, row: list[float]) -> None:
        """A disk that is full costs the chart's past, not its present."""
        try:
            if not self._has_room():
                rows = array("d", chain.from_iterable(self.read()))
                write_private(self._path, _HEADER + rows.tobytes())
            with self._path.open("ab") as file:
                file.write(array("d", row).tobytes())
        except OSError as error:
            _log.warning("charts cannot be kept: %s", error, extra={"event": "series_not_kept"})

    def _has_room(self) -> bool:
        """Whether a row can be appended: to whole rows of our own that are not too many."""
        try:
            with self._path.open("rb") as file:
                is_ours = file.read(len(_HEADER)) == _HEADER
                rows, rest = divmod(file.seek(0, os.SEEK_END) - len(_HEADER), _ROW_BYTES)
        except FileNotFoundError:
            return False
        return is_ours and rest == 0 and rows < 2 * _COARSE_POINTS


class Series:
    """One pipeline's points. May be used by any thread. ``kept`` outlives the server: what is in it
    is shown, and each minute is added to it.
    """

    def __init__(self, kept: SeriesFile | None = None) -> None:
        self._lock = threading.Lock()
        self._fine, self._coarse = _Ring(_FINE_POINTS), _Ring(_COARSE_POINTS)
        self._minute: list[list[float]] = []
        self._last: tuple[float, Mapping[str, Any]] | None = None
        self._kept = kept
        for row in kept.read() if kept is not None else ():
            self._coarse.add(row)
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
                minute, self._minute = _mean(self._minute), []
                self._coarse.add(minute)
                if self._kept is not None:
                    self._kept.add(minute)
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
