"""How a copied table joins the stream while the query goes on.

A batch is staged with the tables that were known when it began. So a table joins at the point where
a batch begins: that batch and all after it bring its changes, and what lies before the point is
replayed. Nothing behind the point is committed until the replay has got there. A query that had to
be started anew for it would keep all tables waiting for seconds.

Where tasks write rows at once, nothing behind the point may be written before that either: a change
that does not say all of its row takes the rest from what stands there. So the batch itself waits.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from penstock.model.errors import BatchAgain
from penstock.model.lsn import Frontier
from penstock.transform.floors import Floors

_TURN_SECONDS = 0.1


class Joins:
    """One query's. Used by the thread that begins its batches, the one that commits them, and the
    one that finishes copies. ``at_once``: what a task of the destination writes is there before
    it is committed.
    """

    def __init__(self, floors: Floors, *, at_once: bool = False) -> None:
        self._floors = floors
        self._at_once = at_once
        self._asking: dict[int, Frontier] = {}
        self._points: dict[int, Frontier] = {}
        self._is_over = False
        self._changed = threading.Condition()

    # -- who begins batches ------------------------------------------------------------------------

    def floors_at(self, start: Frontier, give_up: Callable[[], bool] = lambda: False) -> Floors:
        """For a batch that begins at ``start``; tables that ask to join do so here.

        Where tasks write at once it returns when they have got there. If they cannot, or not while
        this one waits (``give_up``), they do not join at all: the batch comes without them, and
        its commit raises BatchAgain.
        """
        with self._changed:
            if self._asking:
                joined = _with(self._floors, self._asking, start)
                self._points |= dict.fromkeys(self._asking, start)
                self._asking = {}
                self._changed.notify_all()
                if self._at_once and not self._have_joined(give_up):
                    return self._floors
                self._floors = joined
            return self._floors

    def _have_joined(self, give_up: Callable[[], bool]) -> bool:
        """Wait for those that have a point. False where the query is over before that."""
        while self._points and not self._is_over:
            if give_up():
                self.end()
            self._changed.wait(_TURN_SECONDS)
        return not self._points

    # -- who commits them --------------------------------------------------------------------------

    def wait_for(self, frontier: Frontier, give_up: Callable[[], bool]) -> None:
        """Before a batch is committed that ends at ``frontier``: for tables that join before that.

        Raises BatchAgain where they could not, and where they cannot while this one waits.
        """
        with self._changed:
            while any(point < frontier for point in self._points.values()):
                if self._is_over or give_up():
                    raise BatchAgain("a table that was to join the stream did not")
                self._changed.wait(_TURN_SECONDS)

    @property
    def is_settled(self) -> bool:
        """Whether no commit has to wait."""
        with self._changed:
            return not self._points

    # -- who finishes copies -----------------------------------------------------------------------

    def point(self, tables: Mapping[int, Frontier], check: Callable[[], None]) -> Frontier | None:
        """Where tables (and where they stand) join; None where the query ends before that.

        ``join`` or ``end`` must follow. ``check`` raises what ends the waiting.
        """
        with self._changed:
            self._asking = dict(tables)
            while not self._is_over:
                if not self._asking:
                    return self._points[next(iter(tables))]
                self._changed.wait(_TURN_SECONDS)
                try:
                    check()
                except BaseException:
                    if not self._asking:
                        # They have a point by now, to which nobody will bring them.
                        self.end()
                    self._asking = {}
                    raise
            return None

    def join(self, tables: Collection[int], act: Callable[[], None]) -> bool:
        """They have got to their point: ``act`` makes them like all others. False, with nothing
        done, where the query is over: then they are not among those that the next one brings.
        """
        with self._changed:
            if self._is_over:
                return False
            act()
            self._points = {oid: at for oid, at in self._points.items() if oid not in tables}
            self._changed.notify_all()
            return True

    def end(self) -> None:
        """Nobody joins any more: the query is over, or is to be."""
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


class CurrentJoins:
    """Those of the query that is under way; None between two queries. Set by the main thread."""

    query: Joins | None = None


def _with(floors: Floors, tables: Mapping[int, Frontier], start: Frontier) -> Floors:
    """One that stands further on than where it joins is waited for."""
    lowest = {oid: max(at, start).commit_lsn for oid, at in tables.items()}
    return replace(
        floors,
        tables={**floors.tables, **lowest},
        left_out=floors.left_out - lowest.keys(),
        known=None if floors.known is None else floors.known | lowest.keys(),
    )
