"""One replication session: from a started stream to its end, for whatever reason."""

from __future__ import annotations

import os
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from penstock.cadence import paced
from penstock.failpoints import failpoint
from penstock.model.errors import SourceUnavailable
from penstock.model.lsn import Frontier, format_lsn
from penstock.model.table_schema import TableSchema
from penstock.source.capture.keeper import FilledLog, Limits, LogKeeper
from penstock.source.postgres.capture.assemble import Assembler, ends_transaction
from penstock.source.postgres.capture.publisher import Publisher
from penstock.source.postgres.capture.stream import ReplicationStream
from penstock.source.postgres.silence import SILENCE_SECONDS

# How often readers' positions are looked at, and the longest silence towards the server.
_FEEDBACK_SECONDS = 0.2
_STATUS_SECONDS = 5.0
# A segment that waits for the one before it looks this often whether that is done.
_BUSY_SECONDS = 0.005
# A line that brings less than this in one go is quiet: to wait would make no segment large.
_QUIET_BYTES = 64 * 1024
# A reader that lacks no more than so many segments is close behind. One that follows lacks some
# four at 1,000 changes a second, and is asked five times a second where it is.
_CLOSE_SEGMENTS = 64
_LOCK_SECONDS = paced(1.0)


@dataclass(frozen=True)
class CaptureSettings:
    """What a session needs to know of the pipeline file."""

    confirm_log: bool
    segment_bytes: int
    segment_age: float
    max_bytes: int
    grace: float
    silence: float = SILENCE_SECONDS
    """How many seconds the server may say nothing, half of them before it is asked."""


class CaptureSession:
    """Reads one stream into the log until ``stop`` says so or something breaks.

    Its loop answers the server and asks nobody else: what it has to know of the log's storage is
    found out by the keeper's thread, and what it writes there by the publisher's.
    """

    def __init__(
        self,
        stream: ReplicationStream,
        filled: FilledLog,
        assembler: Assembler,
        settings: CaptureSettings,
        confirmed: int,
        check_lock: Callable[[], None],
    ) -> None:
        self._stream = stream
        self._log = filled.log
        self._link = filled.link
        self._assembler = assembler
        self._publisher = Publisher(
            self._assembler, filled.writer, self._share_tables, self._link.published
        )
        self._settings = settings
        self._keeper = LogKeeper(filled, Limits(settings.max_bytes, settings.grace), self._report)
        self._confirmed = confirmed
        self._check_lock = check_lock
        self._oldest: float | None = None
        self._is_quiet = False
        """Whether the stream ran empty, after little, and at the end of a transaction."""
        self._apart = settings.segment_age * self._log.segments.pace.quiet
        self._next_quiet = time.monotonic() + self._apart
        """Until then a quiet line does not end a segment."""
        self._ends: deque[int] = deque(maxlen=_CLOSE_SEGMENTS)
        """Where the log ended before each of the last segments."""
        self._shared_tables: dict[int, TableSchema] | None = None
        self._expect_ours = filled.writer.expect_ours
        self._started = time.time()
        self._next_feedback = self._next_status = self._next_lock = 0.0
        self._last_advance = self._heard = time.monotonic()
        self._asked: float | None = None
        """When the server was asked for a reply because it had been silent."""

    def run(self, stopping: Callable[[], bool], wake: int | None = None) -> None:
        """Capture until ``stopping()``; then publish what is whole and confirm once more."""
        try:
            with self._keeper:
                while not stopping():
                    self._turn(wake)
                self._cut()
                self._publisher.wait()
            self._keeper.look(now=True)
            self._feedback(force=True)
            self._link.report(self._log, self._keeper.report("stopped"))
        finally:
            self._publisher.close()

    def _turn(self, wake: int | None) -> None:
        now = time.monotonic()
        messages: list[memoryview] = []
        heard = False
        full = self._keeper.is_paused = self._keeper.is_full()
        paused = full or self._is_ahead
        if full:
            time.sleep(_FEEDBACK_SECONDS)
        elif paused:
            self._publisher.wait(_FEEDBACK_SECONDS)
        elif heard := self._stream.wait(self._patience(now), wake):
            messages = self._stream.receive()
        now = time.monotonic()
        self._watch_silence(now, heard=heard or paused)
        if messages:
            failpoint("capture.received")
            before = self._assembler.buffered_bytes
            self._assembler.add(messages)
            is_little = self._assembler.buffered_bytes - before < _QUIET_BYTES
            self._is_quiet = is_little and ends_transaction(messages[-1])
            if self._oldest is None:
                self._oldest = now
        del messages
        if self._due(now):
            self._cut()
        elif self._oldest is None:
            self._advance_idle(now)
        if now >= self._next_feedback or self._stream.reply_requested:
            self._next_feedback = now + _FEEDBACK_SECONDS
            self._feedback()
        self._keeper.check()
        if now >= self._next_lock:
            self._next_lock = now + _LOCK_SECONDS
            self._check_lock()

    def _watch_silence(self, now: float, *, heard: bool) -> None:
        """Raise SourceUnavailable where the server does not even answer."""
        if heard:
            self._heard, self._asked = now, None
        elif self._asked is not None and now - self._asked >= self._settings.silence / 2:
            raise SourceUnavailable(
                f"the source's walsender has said nothing for {now - self._heard:.0f} s, though "
                "it was asked for a reply",
                remedy="check the network between here and the source; capture connects anew by "
                "itself",
            )

    def _patience(self, now: float) -> float:
        if self._oldest is None:
            return _FEEDBACK_SECONDS
        least = _BUSY_SECONDS if self._publisher.busy else 0.0
        return max(least, min(_FEEDBACK_SECONDS, self._ends_at(self._oldest) - now))

    # -- segments --------------------------------------------------------------------------------

    def _due(self, now: float) -> bool:
        if self._oldest is None:
            return False
        is_whole = self._assembler.buffered_bytes >= self._settings.segment_bytes
        is_old = now >= self._ends_at(self._oldest)
        # While a segment is being written a small one gains nothing: let it grow.
        return (is_whole or is_old) and not self._publisher.busy

    def _ends_at(self, oldest: float) -> float:
        """When the segment ends that begins with what came at ``oldest``, if it stays small. What a
        quiet line has brought is published at once, but for segments that follow each other too
        closely, and where nobody waits for it.
        """
        ends = oldest + self._settings.segment_age
        return min(ends, self._next_quiet) if self._is_quiet and self._is_followed else ends

    @property
    def _is_followed(self) -> bool:
        """Whether a reader is close behind. While all of them are away, small segments help nobody
        and pile up.
        """
        if len(self._ends) < _CLOSE_SEGMENTS:
            return True
        return any(reader.end_lsn >= self._ends[0] for reader in self._keeper.readers.frontiers)

    @property
    def _is_ahead(self) -> bool:
        """Whether a whole segment waits for the one before it. Nothing is read meanwhile, so that
        memory stays bounded; the server is answered.
        """
        is_whole = self._assembler.buffered_bytes >= self._settings.segment_bytes
        return is_whole and self._publisher.busy

    def _cut(self) -> None:
        if self._oldest is None:
            return
        self._oldest = None
        self._next_quiet = time.monotonic() + self._apart
        if (held := self._publisher.frontier) is not None:
            self._ends.append(held.end_lsn)
        self._publisher.publish()

    def _share_tables(self, tables: dict[int, TableSchema]) -> None:
        """Tell readers that plan a schema about tables that are new or have changed: behind all
        others, for of two with one name the first was dropped or renamed.
        """
        if self._shared_tables is None:
            self._shared_tables = {table.oid: table for table in self._log.tables()}
        shared = self._shared_tables
        new = {
            oid: table
            for oid, table in tables.items()
            if oid not in shared or shared[oid].fingerprint != table.fingerprint
        }
        if new:
            # Whoever has taken over may have told of newer ones.
            self._expect_ours()
            known = {oid: table for oid, table in shared.items() if oid not in new}
            self._log.set_tables(known | new)
            self._shared_tables = known | new

    def _advance_idle(self, now: float) -> None:
        """Record that the WAL up to the server's position held nothing for us.

        An empty segment carries it: readers store it at their destinations, and only then is it
        confirmed. So a slot never stands beyond what log or destination know of.
        """
        held = self._publisher.frontier
        if self._publisher.busy or self._assembler.is_open or held is None:
            return
        self._assembler.advance(Frontier(0, self._stream.wal_end))
        reached = self._assembler.frontier
        if reached.end_lsn <= held.end_lsn:
            return
        wanted = held.end_lsn < self._keeper.readers.wanted_lsn <= reached.end_lsn
        if wanted or now - self._last_advance >= self._log.segments.pace.advance:
            self._last_advance = now
            self._publisher.publish(also_empty=True)

    # -- towards the server ------------------------------------------------------------------------

    def _feedback(self, *, force: bool = False) -> None:
        """Confirm what may be confirmed; answer in time, also while nothing changes."""
        readers, held = self._keeper.readers, self._publisher.frontier
        confirmed = self._confirmed
        if self._settings.confirm_log:
            confirmed = held.end_lsn if held else confirmed
        elif readers.held_lsn is not None:
            confirmed = readers.held_lsn
        now = time.monotonic()
        advanced = confirmed > self._confirmed
        asking = readers.wanted_lsn > self._stream.wal_end
        if self._asked is None and now - self._heard >= self._settings.silence / 2:
            asking, self._asked = True, now
        due = now >= self._next_status or self._stream.reply_requested
        if advanced or due or force or asking:
            failpoint("capture.before_confirm")
            self._confirmed = max(self._confirmed, confirmed)
            self._next_status = now + _STATUS_SECONDS
            self._stream.send_status(
                received=max(self._assembler.frontier.end_lsn, self._confirmed),
                confirmed=self._confirmed,
                ask=asking,
            )

    def _report(self) -> dict[str, Any]:
        """How things are. Called by the keeper's thread."""
        held = self._publisher.frontier
        return {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "started_at": self._started,
            "at": time.time(),
            "wal_end": format_lsn(max(self._stream.wal_end, self._assembler.frontier.end_lsn)),
            "log_end": format_lsn(held.end_lsn) if held else None,
            "confirmed": format_lsn(self._confirmed),
            "messages": self._publisher.messages,
            "received_bytes": self._publisher.received_bytes,
            "transactions": self._publisher.transactions,
            "buffered_bytes": self._assembler.buffered_bytes,
            "left_out": self._publisher.left_out,
            "forged": self._publisher.forged,
            "changes": self._publisher.changes,
            "bytes": self._publisher.bytes,
            "silent_seconds": round(time.monotonic() - self._heard, 1),
        }
