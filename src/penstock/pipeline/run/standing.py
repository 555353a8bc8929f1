"""Where a destination stands, table by table. Pure.

All tables stand at ``frontier``, except those in ``behind``: one that was set aside stays
where it was, and one that is tried again catches up from there. A table that is copied stands at
the point of its snapshot until its changes are replayed; while the stream has a backlog, that is
ahead of the others. Of a table that is set aside without being
behind nothing is kept: it will be copied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from penstock.model.lsn import NOTHING, Frontier
from penstock.transform.floors import Floors


@dataclass(frozen=True)
class Standing:
    """``behind`` holds tables by their oid in the source."""

    frontier: Frontier = NOTHING
    behind: Mapping[int, Frontier] = field(default_factory=dict)

    @property
    def held(self) -> Frontier:
        """What every table holds, and so what may be confirmed and forgotten."""
        return min([self.frontier, *self.behind.values()])

    def start(self, set_aside: Collection[int]) -> Frontier:
        """Where to read on, so that every table that is not set aside gets what it lacks."""
        return min([self.frontier, *self._catching_up(set_aside).values()])

    def floors(self, set_aside: Collection[int], known: Collection[int] | None = None) -> Floors:
        """What of that reading each table has not got yet. With ``known``, nothing of others."""
        return Floors(
            self.frontier.commit_lsn,
            {oid: at.commit_lsn for oid, at in self._catching_up(set_aside).items()},
            frozenset(set_aside),
            None if known is None else frozenset(known),
        )

    def floors_aside(self, tables: Collection[int]) -> Floors:
        """What these tables have not got yet, of a reading that is for nobody else."""
        return Floors(
            self.frontier.commit_lsn,
            {oid: self.at(oid).commit_lsn for oid in tables},
            known=frozenset(tables),
        )

    def at(self, oid: int) -> Frontier:
        """Where one table stands."""
        return self.behind.get(oid, self.frontier)

    def is_together(self, set_aside: Collection[int]) -> bool:
        """Whether no table is catching up."""
        return not self._catching_up(set_aside)

    def after(self, batch: Frontier, set_aside: Collection[int]) -> Standing:
        """Where it stands once it holds a batch that ends at ``batch``."""
        frontier = max(self.frontier, batch)
        behind = {}
        for oid, at in self.behind.items():
            now = at if oid in set_aside else max(at, batch)
            if oid in set_aside or now.end_lsn != frontier.end_lsn:
                behind[oid] = now
        return Standing(frontier, behind)

    def without(self, waiting: Collection[int]) -> Standing:
        """The same, with tables that were set aside just now and whose changes wait for them."""
        return self.placed({oid: self.at(oid) for oid in waiting})

    def placed(self, tables: Mapping[int, Frontier]) -> Standing:
        """The same, with these tables where they are said to be."""
        return Standing(self.frontier, {**self.behind, **tables})

    def freed(self, tables: Collection[int]) -> Standing:
        """The same, with nothing kept for these tables any more."""
        behind = {oid: at for oid, at in self.behind.items() if oid not in tables}
        return Standing(self.frontier, behind)

    def together(self, set_aside: Collection[int]) -> Standing:
        """The same, without entries for tables that stand where all others do."""
        there = [oid for oid, at in self.behind.items() if at.end_lsn == self.frontier.end_lsn]
        return self.freed(set(there) - set(set_aside))

    def _catching_up(self, set_aside: Collection[int]) -> dict[int, Frontier]:
        return {oid: at for oid, at in self.behind.items() if oid not in set_aside}
