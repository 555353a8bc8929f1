"""The batches of a pipeline: whole transactions, one batch after another, as the log has them."""

from __future__ import annotations

from penstock.changelog import chain
from penstock.changelog.barrier import BarrierWatch
from penstock.changelog.batch_size import BatchSize
from penstock.changelog.chain import Batch
from penstock.changelog.changelog import ChangeLog, Listing
from penstock.changelog.feed import TakeTold
from penstock.changelog.schema_points import SchemaPoints
from penstock.changelog.view import LogView
from penstock.model.lsn import Frontier


class LogBatches:
    """For one delivery of a pipeline, from ``start`` on; ``told`` says what is new, where somebody
    does. Belongs to one thread.
    """

    def __init__(
        self,
        log: ChangeLog,
        start: Frontier,
        size: BatchSize,
        delivery: str | None = None,
        told: TakeTold | None = None,
    ) -> None:
        self.frontier = start
        """Where the next batch begins."""
        self.listing: Listing | None = None
        """What the last batch was cut from."""
        self._size = size
        self._view = LogView(log, told, sees_barriers=True)
        self._barriers = BarrierWatch(log, delivery)
        self._schema_points = SchemaPoints(log)

    def next(self) -> Batch | None:
        """What comes next; None where there is nothing. Raises LogError."""
        self.listing = listing = self._view.listing()
        limit = self._limit(listing)
        size = self._size.next(chain.waiting_bytes(listing.segments, listing.sizes, self.frontier))
        batch = chain.next_batch(
            listing.segments, listing.sizes, self.frontier, size.allowed, limit
        )
        if batch is not None:
            self.frontier, self._size = batch.frontier, size
        return batch

    def _limit(self, listing: Listing) -> int | None:
        """What a batch must not pass: a schema change, which the driver brings itself, and the
        point that verify waits for. Asked after the listing.
        """
        limits = (
            self._barriers.held_at(listing),
            self._schema_points.next_after(listing, self.frontier.commit_lsn),
        )
        return min(filter(None, limits), default=None)
