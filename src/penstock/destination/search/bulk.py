"""Documents in bulk requests: each has its own answer, and what may pass is sent again alone."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.backoff import Backoff
from penstock.destination.search.client import SearchAnswer, SearchClient, part
from penstock.destination.search.failures import BUSY, failure, reason
from penstock.model.errors import DestinationError, DestinationUnavailable

_SHOWN = (
    "errors,error,items.*.status,items.*.error.type,items.*.error.reason,"
    "items.*.error.caused_by.reason"
)
_TOO_LARGE = 413
_DOING = "writing documents"
_MOST_DOCUMENTS = 20_000
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0


class GenerationClosed(Exception):
    """The alias that was written to is gone: another generation is written now."""


@dataclass
class BulkOutcome:
    """What became of each line: 2xx, 404 of a delete, 409, or what the server refused it with."""

    status: npt.NDArray[np.int64]
    reasons: dict[int, str] = field(default_factory=dict)
    resent: int = 0

    def refused(self) -> list[int]:
        is_done = (self.status < 300) | np.isin(self.status, (404, 409))
        return np.flatnonzero(~is_done).tolist()


class BulkSender:
    """Sends lines to one alias. A line is an action with its document, if it has one."""

    def __init__(self, client: SearchClient, alias: str) -> None:
        self._client = client
        self._path = f"{part(alias)}/_bulk"
        self._alias = alias
        self._query = {"filter_path": _SHOWN, "require_alias": "true"}

    def send(self, lines: pa.Array) -> BulkOutcome:
        """Returns when each has an answer that stays. Raises GenerationClosed, DestinationError
        where the server refuses all, DestinationUnavailable where nothing got through for long.
        """
        outcome = BulkOutcome(np.zeros(len(lines), np.int64))
        pieces = list(_pieces(lines, self._client.options.bulk_size))
        side_by_side = min(self._client.options.requests, len(pieces))
        if side_by_side <= 1:
            for first, last in pieces:
                self._send(lines, np.arange(first, last), outcome)
            return outcome
        with ThreadPoolExecutor(side_by_side) as pool:
            jobs = [
                pool.submit(self._send, lines, np.arange(first, last), outcome)
                for first, last in pieces
            ]
            try:
                for job in jobs:
                    job.result()
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return outcome

    def _send(self, lines: pa.Array, rows: npt.NDArray[np.int64], outcome: BulkOutcome) -> None:
        """Send some of the lines until each has its answer."""
        pauses = Backoff(first=_FIRST_PAUSE, longest=_LONGEST_PAUSE)
        give_up = time.monotonic() + self._client.options.timeout
        content = lines.slice(int(rows[0]), len(rows))
        while True:
            left, error = self._attempt(content, rows, outcome)
            if not len(left):
                return
            if error is not None and not isinstance(error, DestinationUnavailable):
                raise error
            if len(left) < len(rows):
                give_up = time.monotonic() + self._client.options.timeout
                pauses.start_over()
            elif time.monotonic() > give_up:
                raise error or failure(self._client.options.url, _DOING, 429, _BUSY)
            time.sleep(pauses.next_pause())
            rows, content = left, lines.take(pa.array(left))
            outcome.resent += len(rows)

    def _attempt(
        self, content: pa.Array, rows: npt.NDArray[np.int64], outcome: BulkOutcome
    ) -> tuple[npt.NDArray[np.int64], DestinationError | None]:
        """One request; which of the rows are left, and why."""
        try:
            answer = self._client.once(
                "POST", self._path, _body(content), doing=_DOING, query=self._query
            )
        except DestinationUnavailable as error:
            return rows, error
        if answer.is_done:
            return self._judge(answer, rows, outcome), None
        if answer.status == _TOO_LARGE:
            return self._halved(content, rows, outcome), None
        if answer.status == 404 and reason(answer.body)[0] == "index_not_found_exception":
            raise GenerationClosed(self._alias)
        return rows, failure(self._client.options.url, _DOING, answer.status, answer.body)

    def _halved(
        self, content: pa.Array, rows: npt.NDArray[np.int64], outcome: BulkOutcome
    ) -> npt.NDArray[np.int64]:
        """Send each half by itself; one document alone is refused."""
        if len(rows) == 1:
            outcome.status[rows] = _TOO_LARGE
            outcome.reasons[int(rows[0])] = "it is larger than the server takes"
            return rows[:0]
        for half in np.array_split(np.arange(len(rows)), 2):
            some = BulkOutcome(np.zeros(len(rows), np.int64))
            self._send(content, half, some)
            outcome.status[rows[half]] = some.status[half]
            outcome.resent += some.resent
            outcome.reasons |= {int(rows[at]): why for at, why in some.reasons.items()}
        return rows[:0]

    def _judge(
        self, answer: SearchAnswer, rows: npt.NDArray[np.int64], outcome: BulkOutcome
    ) -> npt.NDArray[np.int64]:
        """Note what became of each, and return those that are to be sent again."""
        again = []
        for row, item in zip(rows.tolist(), answer.body["items"], strict=True):
            ((_, told),) = item.items()
            status = told["status"]
            error = told.get("error")
            if error is None or status == 409:
                outcome.status[row] = status
                continue
            if error.get("type") == "index_not_found_exception":
                raise GenerationClosed(self._alias)
            if status in BUSY or "cluster_block" in error.get("type", ""):
                again.append(row)
                continue
            outcome.status[row] = status if status != 404 else 400
            _, outcome.reasons[row] = reason({"error": error})
        return np.array(again, np.int64)


_BUSY = {"error": {"type": "", "reason": "it answers that it is busy, and nothing gets through"}}


def _pieces(lines: pa.Array, size: int) -> Iterator[tuple[int, int]]:
    """Bounds of pieces of about ``size`` bytes."""
    ends = np.frombuffer(lines.buffers()[1], np.int64)[lines.offset : lines.offset + len(lines) + 1]
    first = 0
    while first < len(lines):
        last = int(np.searchsorted(ends, ends[first] + size, side="right")) - 1
        last = min(max(last, first + 1), first + _MOST_DOCUMENTS, len(lines))
        yield first, last
        first = last


def _body(lines: pa.Array) -> Any:
    """Their bytes, which lie behind each other."""
    ends = np.frombuffer(lines.buffers()[1], np.int64)[lines.offset : lines.offset + len(lines) + 1]
    return memoryview(lines.buffers()[2])[int(ends[0]) : int(ends[-1])]
