"""Bringing copied tables on, apart from the stream of the others.

The log has their changes since the snapshot that they were copied under. They are replayed while
the stream goes on, until little is left; that little comes with the stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from penstock.changelog import chain
from penstock.changelog.changelog import Listing
from penstock.changelog.schema_points import SchemaPoints
from penstock.changelog.view import LogView
from penstock.model.errors import BatchAgain, PenstockError, SegmentGone
from penstock.model.lsn import Frontier
from penstock.pipeline.copy.copy_target import CopyTarget
from penstock.pipeline.run.batch_committer import BatchCommitter
from penstock.pipeline.run.context import RunContext
from penstock.transform.floors import Floors

NEAR_BYTES = 2 * 2**20
"""A table that lacks less than this of the log joins the stream: it is a batch's delay for it."""

_TURN_SECONDS = 0.1


class TablesChanged(PenstockError):
    """Tables whose changes are to be replayed have another layout by then: they are copied anew."""

    def __init__(self, tables: Collection[int]) -> None:
        super().__init__("the table was changed while it was copied")
        self.tables = frozenset(tables)


class Replay:
    """Replays the changes of some tables until they are near the others."""

    def __init__(
        self,
        context: RunContext,
        target: CopyTarget,
        committer: BatchCommitter,
        check: Callable[[], None],
    ) -> None:
        """``check`` is called between batches; what it raises ends the replay."""
        self.committer = committer
        self.check = check
        self._target = target
        self._engine = context.engine
        self._context = context
        self._look_anew()
        self._points = SchemaPoints(context.log)
        self._max_bytes = context.config.batch.max_bytes

    def _look_anew(self) -> None:
        self._view = LogView(self._context.log, self._context.told())

    def bring_near(self, tables: Collection[int], at_least: int = 0) -> None:
        """Replay until little is left, and every table has passed the LSN ``at_least``."""
        while True:
            standing = self.committer.standing
            start = min(standing.at(oid) for oid in tables)
            listing = self._view.listing(standing.frontier)
            left = chain.waiting_bytes(listing.segments, listing.sizes, start)
            ahead = chain.waiting_bytes(listing.segments, listing.sizes, standing.frontier)
            is_there = start.end_lsn >= at_least
            if is_there and left - ahead <= NEAR_BYTES:
                return
            if not self._step(tables, start, standing.frontier.end_lsn, listing) and is_there:
                return

    def bring_to(self, tables: Collection[int], point: int) -> None:
        """Replay what was committed before the LSN ``point``, and nothing else."""
        while (start := min(map(self.committer.standing.at, tables))).end_lsn < point:
            frontier = self.committer.standing.frontier
            limit = min(point, frontier.end_lsn)
            self._step(tables, start, limit, self._view.listing(frontier))

    def _step(self, tables: Collection[int], start: Frontier, limit: int, listing: Listing) -> bool:
        """Replay a batch of what comes before ``limit``; False after a moment if nothing does."""
        self.check()
        try:
            return self._next(tables, start, limit, listing)
        except SegmentGone:
            # What we know of the log is older than what was removed from it.
            self._look_anew()
            raise

    def _next(self, tables: Collection[int], start: Frontier, limit: int, listing: Listing) -> bool:
        if changed := self._points.touching(listing, tables, start.commit_lsn, limit):
            raise TablesChanged(changed)
        batch = chain.next_batch(listing.segments, listing.sizes, start, self._max_bytes, limit)
        if batch is None:
            # The stream itself has not come this far.
            time.sleep(_TURN_SECONDS)
            return False
        self._bring(tables, batch)
        return True

    def _bring(self, tables: Collection[int], batch: chain.Batch) -> None:
        standing = self.committer.standing
        writer = self._target.replays.catchup_writer(tables)
        job = self._engine.write_batch(batch, Floors.of_tables(standing, tables), writer)
        reached = {oid: max(standing.at(oid), batch.frontier) for oid in tables}
        try:
            self.committer.commit_aside(job, reached)
        except BatchAgain:
            # What was staged is gone, or the destination has to be asked where it stands, which the
            # stream does before it goes on. The same changes are read again.
            time.sleep(_TURN_SECONDS)
