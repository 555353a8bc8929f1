"""Which tables stand at one point by now: the destination is told of those that come to it."""

from __future__ import annotations

from concurrent.futures import Executor, Future

from penstock.pipeline.copy.copy_state import Positions
from penstock.pipeline.copy.copy_target import CopyTarget
from penstock.pipeline.tables.registry import TableRegistry


class JoinedTables:
    """Looked after by the copy manager's thread. What the destination does then takes as long as
    it takes, in a thread of ``pool``; nothing waits for it.
    """

    def __init__(
        self, target: CopyTarget, tables: TableRegistry, positions: Positions, pool: Executor
    ) -> None:
        self._target = target
        self._tables = tables
        self._positions = positions
        self._pool = pool
        self._told: frozenset[int] = frozenset()
        self._telling: Future[None] | None = None
        self._tells_of: frozenset[int] = frozenset()
        self._has_stayed = True

    @property
    def is_settled(self) -> bool:
        """Whether the destination has done what it can. For any thread."""
        return self._telling is None and self._together() <= self._told

    def look(self) -> None:
        """Called often. Raises what the destination raised; then it is told again."""
        together = self._together()
        self._told &= together
        if self._telling is not None:
            self._has_stayed = self._has_stayed and self._tells_of <= together
            if self._telling.done():
                self._end()
            return
        if new := together - self._told:
            self._tells_of, self._has_stayed = together, True
            self._telling = self._pool.submit(self._target.complete_together, together, new)

    def _end(self) -> None:
        telling, self._telling = self._telling, None
        assert telling is not None  # noqa: S101 (asked before)
        telling.result()
        if not self._has_stayed:
            # What was found may be so because one of them has left the others meanwhile.
            return
        for oid in self._tells_of:
            self._tables.note_anew(oid, self._target.notes(oid), self._target.is_outdated)
        self._told = self._tells_of

    def _together(self) -> frozenset[int]:
        # In this order: whoever leaves the others is not ready before it is known to be behind.
        return self._tables.ready - self._positions.standing.behind.keys()
