"""What tasks wrote of a batch, on its way to the destination while others still write the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from penstock.destination.contract import Destination, Receipt
from penstock.destination.protocols import TakesPieces


class Pieces:
    """Of one query. ``size`` is for the thread that begins batches, the rest for the one that
    commits them.
    """

    def __init__(
        self,
        destination: Destination,
        size: int,
        may_take: Callable[[], bool],
        locked: Callable[[], AbstractContextManager[None]],
    ) -> None:
        """``size`` in bytes; ``may_take``: nothing has to happen before the batch is committed;
        ``locked`` keeps commits of other threads away, which undo what is taken.
        """
        self._destination = destination if isinstance(destination, TakesPieces) else None
        self._size = size
        self._may_take = may_take
        self._locked = locked
        self._goes_on = False

    @property
    def size(self) -> int | None:
        """About how large pieces of the next batch are; None where it comes in one."""
        gains = self._destination is not None and self._destination.gains_by_pieces
        return self._size if gains else None

    def take(self, receipts: Sequence[Receipt], *, is_first: bool) -> None:
        """A piece of the batch that is committed next. After one that was left out, all are."""
        self._goes_on = (is_first or self._goes_on) and self._may_take()
        if self._goes_on and self._destination is not None:
            # Asked before: who lets a table join holds its lock, and then takes this one.
            with self._locked():
                self._destination.take_piece(receipts)

    def undo(self) -> None:
        """Nothing of the batch is taken before its commit."""
        self._goes_on = False
        if self._destination is not None:
            self._destination.undo_pieces()
