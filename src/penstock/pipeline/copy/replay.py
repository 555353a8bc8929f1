"""Bringing copied tables on, apart from the stream of the others.

The log has their changes since the snapshot that they were copied under. They are replayed while
the stream goes on, until little is left; that little comes with the stream.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from penstock.changelog import chain
from penstock.changelog.changelog import ChangeLog, Listing
from penstock.changelog.schema_points import SchemaPoints
from penstock.destination.contract import TaskWriter
from penstock.metrics.written import JobResult
from penstock.model.errors import BatchAgain, PenstockError
from penstock.model.lsn import Frontier
from penstock.pipeline.copy.copy_target import CopyTarget
from penstock.pipeline.run.batch_committer import BatchCommitter
from penstock.transform.floors import Floors

NEAR_BYTES = 2 * 2**20
"""A table that lacks less than this of the log joins the stream: it is a batch's delay for it."""

_TURN_SECONDS = 0.1


RunBatch = Callable[[chain.Batch, Floors, TaskWriter], JobResult]
"""Runs one Spark job."""


class TablesChanged(PenstockError):
    """Tables whose changes are to be replayed have another layout by then: they are copied anew."""

    def __init__(self, tables: Collection[int]) -> None:
        super().__init__("the table was changed while it was copied")
        self.tables = frozenset(tables)


class Replay:
    """Replays the changes of some tables until they are near the others."""

    def __init__(
        self,
        target: CopyTarget,
        committer: BatchCommitter,
        log: ChangeLog,
        max_bytes: int,
        run_batch: RunBatch,
        check: Callable[[], None],
    ) -> None:
        """``check`` is called between batches; what it raises ends the replay."""
        self._target = target
        self._committer = committer
        self._log = log
        self._points = SchemaPoints(log)
        self._max_bytes = max_bytes
        self._run_batch = run_batch
        self._check = check

    def bring_near(self, tables: Collection[int], at_least: int = 0) -> None:
        """Replay until little is left, and every table has passed the LSN ``at_least``."""
        while True:
            standing = self._committer.standing
            start = min(standing.at(oid) for oid in tables)
            listing = self._log.list()
            left = chain.waiting_bytes(listing.segments, listing.sizes, start)
            ahead = chain.waiting_bytes(listing.segments, listing.sizes, standing.frontier)
            is_there = start.end_lsn >= at_least
            if is_there and left - ahead <= NEAR_BYTES:
                return
            if not self._step(tables, start, standing.frontier.end_lsn, listing) and is_there:
                return

    def bring_to(self, tables: Collection[int], point: int) -> None:
        """Replay what was committed before the LSN ``point``, and nothing else."""
        while (start := min(map(self._committer.standing.at, tables))).end_lsn < point:
            limit = min(point, self._committer.standing.frontier.end_lsn)
            self._step(tables, start, limit, self._log.list())

    def _step(self, tables: Collection[int], start: Frontier, limit: int, listing: Listing) -> bool:
        """Replay a batch of what comes before ``limit``; False after a moment if nothing does."""
        self._check()
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
        standing = self._committer.standing
        writer = self._target.replays.catchup_writer(tables)
        job = self._run_batch(batch, Floors.of_tables(standing, tables), writer)
        reached = {oid: max(standing.at(oid), batch.frontier) for oid in tables}
        try:
            self._committer.commit_aside(job, reached)
        except BatchAgain:
            # What was staged is gone, or the destination has to be asked where it stands, which the
            # stream does before it goes on. The same changes are read again.
            time.sleep(_TURN_SECONDS)
