"""Where a destination stands, table by table. Pure.

All tables stand at ``frontier``, except those that are ``behind``: one that was set aside stays
where it was, and one that is tried again catches up from there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from penstock.lsn import NOTHING, Frontier
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

    def floors(self, set_aside: Collection[int]) -> Floors:
        """What of that reading each table has not got yet."""
        return Floors(
            self.frontier.commit_lsn,
            {oid: at.commit_lsn for oid, at in self._catching_up(set_aside).items()},
            frozenset(set_aside),
        )

    def is_together(self, set_aside: Collection[int]) -> bool:
        """Whether no table is catching up."""
        return not self._catching_up(set_aside)

    def after(self, batch: Frontier, set_aside: Collection[int]) -> Standing:
        """Where it stands once it holds a batch that ends at ``batch``."""
        frontier = max(self.frontier, batch)
        behind = {}
        for oid, at in self.behind.items():
            now = at if oid in set_aside else max(at, batch)
            if oid in set_aside or now < frontier:
                behind[oid] = now
        return Standing(frontier, behind)

    def without(self, set_aside: Collection[int]) -> Standing:
        """The same, with tables that were set aside just now."""
        return Standing(self.frontier, {**dict.fromkeys(set_aside, self.frontier), **self.behind})

    def _catching_up(self, set_aside: Collection[int]) -> dict[int, Frontier]:
        return {oid: at for oid, at in self.behind.items() if oid not in set_aside}
