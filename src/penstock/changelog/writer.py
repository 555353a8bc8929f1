"""The writer of a change log: takes the epoch, publishes segments, removes old ones."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Collection
from typing import TYPE_CHECKING

from penstock.changelog.changelog import ChangeLog, Listing, epoch_name
from penstock.changelog.segment_name import SegmentName
from penstock.model.errors import Fenced, LogError
from penstock.model.lsn import Frontier

if TYPE_CHECKING:
    from penstock.changelog.segment import Segment


class LogWriter:
    """The one writer of a log. Opening it fences all earlier ones.

    It knows what the log holds without looking: nobody else adds or removes segments.
    """

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self.epoch = self._claim_epoch()
        self._next_look = 0.0
        log.segments.delete_temporary()
        self._drop_unfinished()
        listing = log.list()
        # It may be confirmed as soon as it counts, and its writer may have died before his fsync.
        log.segments.settle()
        self.frontier = listing.frontier
        self._next = listing.segments[-1].sequence + 1 if listing.segments else 1
        self._lock = threading.Lock()
        self._held = {name: listing.sizes[name] for name in listing.segments}
        self._total = sum(self._held.values())

    @property
    def listing(self) -> Listing:
        """What the log holds. For any thread."""
        with self._lock:
            return Listing(tuple(self._held), dict(self._held))

    @property
    def total_bytes(self) -> int:
        """What the log takes. For any thread."""
        return self._total

    def size_of(self, name: SegmentName) -> int:
        """For any thread."""
        with self._lock:
            return self._held[name]

    def remove(self, names: Collection[SegmentName]) -> None:
        """Delete segments that nobody needs, all of them up to one. For any thread.

        Stores delete many in any order, and may do so in part. The last one is deleted last: while
        it is there it says that those before it were not needed (``without_passed_head``).
        """
        *most, last = sorted(names)
        self._log.segments.delete(*map(str, most))
        self._log.segments.delete(str(last))
        with self._lock:
            for name in names:
                self._total -= self._held.pop(name)

    def publish(
        self,
        segment: Segment,
        frontier: Frontier,
        *,
        is_open: bool,
        has_schema_changes: bool = False,
    ) -> SegmentName:
        """Make a segment durable and visible. Returns once both hold, and it counts: whoever takes
        over from now on finds it. So what it holds may be confirmed.
        """
        from penstock.changelog.segment import encode_segment

        compressed = self._log.segments.compresses and segment.rows.num_rows > 0
        data, digest = encode_segment(segment, compressed=compressed)
        after = self.frontier.commit_lsn if self.frontier else 0
        name = SegmentName(
            sequence=self._next,
            epoch=self.epoch,
            after=after,
            last=frontier.commit_lsn,
            end_lsn=frontier.end_lsn,
            rows=segment.rows.num_rows,
            is_open=is_open,
            checksum=digest,
            has_schema_changes=has_schema_changes,
            unpacked=segment.rows.nbytes if compressed else 0,
        )
        self._check_fence()
        try:
            self._log.segments.write(str(name), data, durable=True)
        except LogError:
            # A writer that took over meanwhile has swept the half-written file away.
            self._check_fence(now=True)
            raise
        # Whoever has taken over meanwhile may not have seen it: he looked after our epoch was gone.
        self._check_fence(now=True)
        self._next += 1
        self.frontier = frontier
        with self._lock:
            self._held[name] = len(data)
            self._total += len(data)
        return name

    def start_at(self, frontier: Frontier, source: str = "") -> None:
        """Say from where on the next segments hold everything; ``source`` is where it stands then.

        What an earlier writer has sent and the storage has not taken yet would have the next
        number: an empty segment takes it, and so that one never counts.
        """
        self.frontier = frontier
        if self._log.segments.has_late_writes and self._held:
            from penstock.changelog.segment import without_rows

            self.publish(without_rows(source), frontier, is_open=False)

    def expect_ours(self) -> None:
        """Raises Fenced where another writer has taken over. For what is beside segments."""
        self._check_fence(now=True)

    def _claim_epoch(self) -> int:
        """The body tells writers apart: one that gets no answer asks whether it was itself."""
        epochs = self._log.epochs
        body = {"writer": uuid.uuid4().hex, "host": socket.gethostname(), "pid": os.getpid()}
        epoch = self._next_epoch()
        while True:
            if epochs.create(epoch_name(epoch), json.dumps(body).encode()):
                found = [int(name) for name, _size in epochs.list() if name.isdigit()]
                if max(found, default=0) <= epoch:
                    break
                # Somebody had this number, and a later one has removed it since.
                epochs.delete(epoch_name(epoch))
            epoch += 1
        epochs.delete(*(epoch_name(number) for number in found if number < epoch))
        return epoch

    def _next_epoch(self) -> int:
        """The one after all that the log has had. What was sent to a log that was deleted may still
        arrive in the one that takes its place, whose epochs have to be greater: they begin at the
        second of its making, for no log has a writer a second.
        """
        # Listed before the claim: a segment that is really missing must be an error here.
        written = [segment.epoch for segment in self._log.list().segments]
        newest = max([self._log.newest_epoch(), *written])
        if not newest and self._log.segments.has_late_writes:
            return int(time.time())
        return newest + 1

    def _check_fence(self, *, now: bool = False) -> None:
        """Whoever takes over removes the epochs of all others, and then looks what the log holds.
        Before a write that is looked at as often as the storage's pace allows; after it always.
        """
        at = time.monotonic()
        if at < self._next_look and not now:
            return
        self._next_look = at + self._log.epochs.pace.fence
        if not self._log.epochs.exists(epoch_name(self.epoch)):
            raise Fenced(
                f"another capture process has taken over the change log {self._log.root.path}",
                remedy="let one capture process run for each pipeline; this one stops",
            )

    def _drop_unfinished(self) -> None:
        """Remove segments at the end that hold only a part of a transaction, and stale ones.

        Postgres sends that transaction again, whole.
        """
        listing = self._log.list()
        segments = list(listing.segments)
        dropped = [*(listing.sizes.keys() - set(segments))]
        while segments and segments[-1].is_unfinished:
            dropped.append(segments.pop())
        self._log.segments.delete(*map(str, dropped))
