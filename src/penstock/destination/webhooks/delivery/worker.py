"""One subscription at work: a window of events, sent lane by lane."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache

import numpy as np
import pyarrow as pa

from penstock.config.table_patterns import TablePatterns, split_name
from penstock.destination.webhooks.delivery.request import EndpointAnswer, Request
from penstock.destination.webhooks.options import WebhooksOptions
from penstock.destination.webhooks.outbox import Kind, OutboxSegment, Rows, message_id
from penstock.destination.webhooks.subscription import Kept, OutboxPlace
from penstock.failpoints import failpoint
from penstock.model.errors import ConfigError, PenstockError

# What a subscription holds in memory: enough to be busy, little enough for thousands of them.
WINDOW_EVENTS = 64
WINDOW_BYTES = 256 * 1024
# A receiver may ask for patience, but not for ever.
_LONGEST_ASKED = 6 * 3600.0
_JITTER = 0.2
_LOOK_SECONDS = 0.05
# A secret that is on its way out is not used much longer than it may.
_KEYS_SECONDS = 10.0
# What is remembered of patterns, for all subscriptions together.
_KNOWN_PATTERNS = 1024
_KNOWN_TABLES = 2**16

Keys = Callable[[Kept], Sequence[bytes]]
"""The secrets to sign with now. Raises ConfigError where one cannot be had."""
KeepLetter = Callable[["DueEvent", str], Awaitable[None]]


@dataclass(frozen=True)
class DueEvent:
    """One request to come. ``lane``: those of a lane are sent one after another."""

    place: OutboxPlace
    id: str
    table: str
    lane: int
    body: bytes


class Worker:
    """Belongs to one event loop. ``position`` is always the first event that is not delivered.

    ``is_behind``: it reads on by itself, from ``read_at``; else it is handed what is new.
    """

    def __init__(
        self,
        kept: Kept,
        options: WebhooksOptions,
        keys: Keys,
        send: Callable[[Request], Awaitable[EndpointAnswer]],
        keep_letter: KeepLetter,
    ) -> None:
        self.kept = kept
        self._options = options
        self._keys = keys
        self._send = send
        self._keep_letter = keep_letter
        self.is_behind = True
        self.read_at = kept.place
        self.room = asyncio.Event()
        self.room.set()
        self.ended: tuple[str, str] | None = None
        """State and reason, once it cannot go on by itself."""
        self.delivered = 0
        self.failing_since = kept.failing_since
        self.last_error = kept.last_error
        self._pending: dict[OutboxPlace, DueEvent] = {}
        self._bytes = 0
        self._lanes: dict[int, deque[DueEvent]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._reachable = asyncio.Event()
        self._reachable.set()
        self._prober: int | None = None
        """The lane that tries while nobody answers: the others wait for it."""
        self._signing: Sequence[bytes] = ()
        self._keys_until = 0.0
        self._tables = tuple(kept.wanted.tables)
        self._operations = frozenset(kept.wanted.operations)
        self.table_names = _names(self._tables)
        """The tables that it names; None where a pattern of it may mean any number of them."""

    # -- what it takes -------------------------------------------------------------------------

    def wants(self, kind: Kind) -> bool:
        """Whether events of an operation and a table are for it. Messages are of no table."""
        op, schema, table = kind
        if op not in self._operations:
            return False
        if op == "message":
            return True
        if self.table_names is not None:
            return (schema, table) in self.table_names
        return _matches(self._tables, schema, table)

    def gets(self, segment: int) -> bool:
        """Whether the outbox has anything for it from a segment on."""
        return self.kept.ends is None or segment < self.kept.ends

    def is_handed(self, segment: int) -> bool:
        """Whether it is handed a segment that is new: not where it was added after that was
        committed.
        """
        return not self.is_behind and self.read_at.segment <= segment and self.gets(segment)

    def rows(self, segment: OutboxSegment) -> list[int]:
        """The rows of a segment that are for it."""
        return in_order([rows for kind, rows in segment.rows_of.items() if self.wants(kind)])

    def take(self, segment: OutboxSegment, rows: Sequence[int], start: int = 0) -> None:
        """Take what there is room for. What does not fit it reads by itself, later."""
        rows = [row for row in rows if row >= start]
        room = max(0, WINDOW_EVENTS - len(self._pending))
        some = rows[:room]
        held = len(self._pending)
        end: OutboxPlace | None = None
        for event in self._events(segment, some):
            if self._pending and self._bytes + len(event.body) > WINDOW_BYTES:
                end = event.place
                break
            self._pending[event.place] = event
            self._bytes += len(event.body)
            self._lanes.setdefault(event.lane, deque()).append(event)
            self._start(event.lane)
        if end is None and len(rows) > len(some):
            end = OutboxPlace(segment.number, rows[len(some)])
        if end is not None:
            self.is_behind = True
            self.read_at = end
        else:
            self.read_at = OutboxPlace(segment.number + 1)
        if end is not None and len(self._pending) == held:
            # There is room again when something has left; until then a look is in vain.
            self.room.clear()
        else:
            self._look_for_room()

    def _events(self, segment: OutboxSegment, rows: Sequence[int]) -> list[DueEvent]:
        if not rows:
            return []
        some = segment.events.take(pa.array(rows))
        columns = [
            some.column(name).to_pylist()
            for name in ("commit_lsn", "ordinal", "part", "apart", "schema", "table", "lane_hash")
        ]
        values = some.column("value").to_pylist()
        lanes, source = self.kept.wanted.concurrency, segment.source
        return [
            DueEvent(
                OutboxPlace(segment.number, row),
                message_id(source, lsn, ordinal, part, apart),
                f"{schema}.{table}",
                hashed % lanes,
                value.encode(),
            )
            for row, value, lsn, ordinal, part, apart, schema, table, hashed in zip(
                rows, values, *columns, strict=True
            )
        ]

    def position(self, newest: int) -> OutboxPlace:
        """Where it stands; ``newest`` is the last segment that was handed out."""
        if self._pending:
            return next(iter(self._pending))
        return self.read_at if self.is_behind else OutboxPlace(newest + 1)

    async def rest(self) -> None:
        """Until it has all that there is, or is failing."""
        while self.ended is None and self.failing_since is None:
            tasks = [task for task in self._tasks.values() if not task.done()]
            if not tasks and not self.is_behind:
                return
            await asyncio.wait(tasks, timeout=_LOOK_SECONDS) if tasks else await asyncio.sleep(0.01)

    # -- sending -------------------------------------------------------------------------------

    def _start(self, lane: int) -> None:
        task = self._tasks.get(lane)
        if (task is None or task.done()) and self.ended is None:
            self._tasks[lane] = asyncio.get_running_loop().create_task(self._run(lane))

    async def _run(self, lane: int) -> None:
        try:
            await self._send_lane(self._lanes[lane])
        except Exception as error:
            # Seen by whoever looks at the subscription; its backlog stays.
            self.end("paused", f"sending failed: {type(error).__name__}: {error}")

    async def _send_lane(self, queue: deque[DueEvent]) -> None:
        while queue and self.ended is None:
            event = queue[0]
            if not await self._deliver(event):
                return
            failpoint("webhooks.answered")
            queue.popleft()
            del self._pending[event.place]
            self._bytes -= len(event.body)
            self._look_for_room()

    async def _deliver(self, event: DueEvent) -> bool:
        """Until it is there, or kept as a dead letter; False where the subscription ends."""
        pause, began = self._options.retry.first, time.monotonic()
        while True:
            if self._prober != event.lane:
                await self._reachable.wait()
            if self.ended is not None:
                return False
            answer = await self._attempt(event)
            if answer.verdict != "away":
                self._prober = None
                self._reachable.set()
            if answer.verdict == "delivered":
                self.delivered += 1
                self.failing_since, self.last_error = None, ""
                return True
            self.last_error = answer.why
            if answer.verdict == "gone":
                self.end("disabled", f"{answer.why}: it wants nothing any more")
                return False
            if answer.verdict == "refused":
                if self.kept.wanted.on_refused == "pause":
                    said = f"event {event.id} of {event.table} was refused: {answer.why}"
                    self.end("paused", said)
                    return False
                try:
                    await self._keep_letter(event, answer.why)
                    return True
                except PenstockError as error:
                    answer = EndpointAnswer("later", error.message)
            if self._gives_up(answer, time.monotonic() - began):
                return False
            if answer.verdict == "away" and self._prober not in (None, event.lane):
                # Another lane tries already, and this one hears of it.
                continue
            if answer.verdict == "away":
                self._prober = event.lane
                self._reachable.clear()
            jitter = random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 (no secret)
            wait = max(pause, min(answer.wait, _LONGEST_ASKED))
            pause = min(pause * 2, self._options.retry.longest)
            await asyncio.sleep(wait * jitter)

    async def _attempt(self, event: DueEvent) -> EndpointAnswer:
        now = time.monotonic()
        if now > self._keys_until:
            try:
                self._signing = self._keys(self.kept)
            except ConfigError as error:
                return EndpointAnswer("away", error.message)
            self._keys_until = now + _KEYS_SECONDS
        wanted = self.kept.wanted
        request = Request(wanted.url, wanted.format, event.id, event.body, self._signing)
        return await self._send(request)

    def _gives_up(self, answer: EndpointAnswer, tried: float) -> bool:
        """``tried``: for how many seconds this event was."""
        now = datetime.now(UTC)
        self.failing_since = self.failing_since or now
        failing = max(tried, (now - self.failing_since).total_seconds())
        if failing < self._options.retry.give_up:
            return False
        self.end("paused", f"nothing was taken for {failing / 3600:.1f} h; at last: {answer.why}")
        return True

    def end(self, state: str, reason: str) -> None:
        """Nothing is sent any more, whatever waits; what is under way may still arrive."""
        if self.ended is None:
            self.ended = state, reason
            self._reachable.set()
            self.room.set()

    async def stop(self) -> None:
        """Let go. Requests that are under way are waited for, for a moment."""
        self.end("", "")
        tasks = [task for task in self._tasks.values() if not task.done()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def renew(self, kept: Kept) -> None:
        """A person has changed something else than its state: a secret, say."""
        self.kept = kept
        self._keys_until = 0.0

    def _look_for_room(self) -> None:
        if len(self._pending) < WINDOW_EVENTS // 2 and self._bytes < WINDOW_BYTES // 2:
            self.room.set()
        else:
            self.room.clear()


def _names(tables: tuple[str, ...]) -> frozenset[tuple[str, str]] | None:
    if any(pattern.has_wildcard for pattern in _patterns(tables).include):
        return None
    return frozenset(map(split_name, tables))


@lru_cache(_KNOWN_PATTERNS)
def _patterns(tables: tuple[str, ...]) -> TablePatterns:
    return TablePatterns(tables)


@lru_cache(_KNOWN_TABLES)
def _matches(tables: tuple[str, ...], schema: str, table: str) -> bool:
    """For all subscriptions with the same patterns at once: there are many, and many tables."""
    return _patterns(tables).matches(schema, table)


def in_order(rows: Sequence[Rows]) -> list[int]:
    """The rows of several kinds of events, as they stand in their segment."""
    if not rows:
        return []
    found: list[int] = (rows[0] if len(rows) == 1 else np.sort(np.concatenate(rows))).tolist()
    return found
