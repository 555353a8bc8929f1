"""The batches of a pipeline: whole transactions, one batch after another, as the log has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from penstock.changelog import chain
from penstock.changelog.barrier import BarrierWatch
from penstock.changelog.batch_size import BatchSize
from penstock.changelog.chain import Batch, Pointer
from penstock.changelog.changelog import ChangeLog, Listing
from penstock.changelog.feed import TakeTold
from penstock.changelog.schema_points import SchemaPoints
from penstock.changelog.view import LogView
from penstock.model.lsn import Frontier


@dataclass(frozen=True)
class BatchPiece:
    """What one job takes of a batch; its ``frontier`` is where the batch ends, as far as known."""

    batch: Batch
    is_first: bool = True
    """Of a batch. What was taken before, of one that had no last piece, does not count."""
    is_last: bool = True


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
        """Where the next batch begins, or the one of which a piece was taken."""
        self.listing: Listing | None = None
        """What the last batch was cut from."""
        self._size = size
        self._view = LogView(log, told, sees_barriers=True)
        self._barriers = BarrierWatch(log, delivery)
        self._schema_points = SchemaPoints(log)
        self._taken: tuple[Pointer, ...] = ()
        """Of the batch that begins at ``frontier``."""
        self._batch: Batch | None = None
        """The same batch, once it is known where it ends."""

    def next(self, piece_bytes: int | None = None) -> BatchPiece | None:
        """What comes next, with ``piece_bytes`` in pieces of about that size; None where there is
        nothing. Raises LogError.

        A transaction that capture is still writing to the log is taken in pieces, too. Should its
        writer not finish it, its batch begins anew.
        """
        if self._batch is None:
            self.listing = listing = self._view.listing()
            limit = self._limit(listing)
            self._batch = self._whole(listing, limit)
            if self._batch is None:
                if piece_bytes is None or limit is not None:
                    return None
                return self._unfinished(listing, piece_bytes)
        left = self._batch.pointers[len(self._taken) :]
        some = left if piece_bytes is None else _first(left, piece_bytes)
        batch = Batch(self._batch.frontier, some)
        piece = BatchPiece(batch, not self._taken, is_last=len(some) == len(left))
        self._taken += some
        if piece.is_last:
            self.frontier, self._batch, self._taken = batch.frontier, None, ()
        return piece

    def is_full(self) -> bool:
        """Whether so much lies beyond the last batch that waiting makes no fuller one. Asked
        between two batches. Raises LogError.
        """
        listing = self._view.listing()
        waiting = chain.waiting_bytes(listing.segments, listing.sizes, self.frontier)
        return waiting >= self._size.max_bytes

    def _whole(self, listing: Listing, limit: int | None) -> Batch | None:
        segments, sizes = listing.segments, listing.sizes
        size = self._size.next(chain.waiting_bytes(segments, sizes, self.frontier))
        batch = chain.next_batch(segments, sizes, self.frontier, size.allowed, limit)
        if limit is not None or (batch is not None and not _begins(batch.pointers, self._taken)):
            # It may end before what was taken, or somebody else has written what follows.
            self._taken = ()
        if batch is not None:
            self._size = size
        return batch

    def _unfinished(self, listing: Listing, piece_bytes: int) -> BatchPiece | None:
        known = chain.unfinished(listing.segments, listing.sizes, self.frontier)
        if not _begins(known, self._taken):
            self._taken = ()
        some = _first(known[len(self._taken) :], piece_bytes)
        if sum(pointer.size for pointer in some) < piece_bytes:
            return None
        is_first, self._taken = not self._taken, self._taken + some
        return BatchPiece(Batch(self.frontier, some), is_first, is_last=False)

    def _limit(self, listing: Listing) -> int | None:
        """What a batch must not pass: a schema change, which the driver brings itself, and the
        point that verify waits for. Asked after the listing.
        """
        limits = (
            self._barriers.held_at(listing),
            self._schema_points.next_after(listing, self.frontier.commit_lsn),
        )
        return min(filter(None, limits), default=None)


def _first(pointers: Sequence[Pointer], size: int) -> tuple[Pointer, ...]:
    """As many as are that large together, if there are so many."""
    taken = 0
    for count, pointer in enumerate(pointers, 1):
        taken += pointer.size
        if taken >= size:
            return tuple(pointers[:count])
    return tuple(pointers)


def _begins(pointers: Sequence[Pointer], taken: Sequence[Pointer]) -> bool:
    """Whether these are the segments that were taken first."""
    return [p.segment for p in pointers[: len(taken)]] == [p.segment for p in taken]
