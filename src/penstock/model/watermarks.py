"""How far a destination has come, table by table. Pure.

All tables stand at ``frontier``, except those in ``behind``: a table that was set aside stays where
it was, and one that is tried again catches up from there. A table that is copied stands at the
point of its snapshot until its changes are replayed; while the stream has a backlog, that is ahead
of the others. Of a table that is set aside without being behind nothing is kept: it will be copied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.model.lsn import NOTHING, Frontier
from penstock.model.source_identity import SourceIdentity


@dataclass(frozen=True)
class Watermarks:
    """``behind`` holds tables by their oid in the source. ``source`` says of which source all of it
    is; what older versions stored does not.
    """

    frontier: Frontier = NOTHING
    behind: Mapping[int, Frontier] = field(default_factory=dict)
    source: SourceIdentity | None = None

    @property
    def low(self) -> Frontier:
        """The low watermark: what every table holds, and so what may be confirmed and forgotten."""
        return min([self.frontier, *self.behind.values()])

    def start(self, set_aside: Collection[int]) -> Frontier:
        """Where to read on, so that every table that is not set aside gets what it lacks."""
        return min([self.frontier, *self.catching_up(set_aside).values()])

    def at(self, oid: int) -> Frontier:
        """Where one table stands."""
        return self.behind.get(oid, self.frontier)

    def is_together(self, set_aside: Collection[int]) -> bool:
        """Whether no table is catching up."""
        return not self.catching_up(set_aside)

    def after(self, batch: Frontier, set_aside: Collection[int]) -> Watermarks:
        """The same once the destination holds a batch that ends at ``batch``."""
        frontier = max(self.frontier, batch)
        behind = {}
        for oid, at in self.behind.items():
            now = at if oid in set_aside else max(at, batch)
            if oid in set_aside or now.end_lsn != frontier.end_lsn:
                behind[oid] = now
        return replace(self, frontier=frontier, behind=behind)

    def placed(self, tables: Mapping[int, Frontier]) -> Watermarks:
        """The same, with these tables where they are said to be."""
        return replace(self, behind={**self.behind, **tables})

    def freed(self, tables: Collection[int]) -> Watermarks:
        """The same, with nothing kept for these tables any more."""
        behind = {oid: at for oid, at in self.behind.items() if oid not in tables}
        return replace(self, behind=behind)

    def together(self, set_aside: Collection[int]) -> Watermarks:
        """The same, without entries for tables that stand where all others do."""
        there = [oid for oid, at in self.behind.items() if at.end_lsn == self.frontier.end_lsn]
        return self.freed(set(there) - set(set_aside))

    def has_joined(self, oid: int, snapshot_lsn: int) -> bool:
        """Whether a table that was copied under a snapshot of this LSN had joined the others by
        then. From its snapshot on it stands apart until it does.
        """
        return oid not in self.behind and self.frontier.end_lsn > snapshot_lsn

    def catching_up(self, set_aside: Collection[int]) -> dict[int, Frontier]:
        """The tables that stand elsewhere and are not set aside."""
        return {oid: at for oid, at in self.behind.items() if oid not in set_aside}

    def to_json(self) -> dict[str, Any]:
        return {
            "frontier": self.frontier.to_json(),
            "behind": {str(oid): at.to_json() for oid, at in self.behind.items()},
            "source": None if self.source is None else self.source.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Watermarks:
        """What ``to_json`` gave, by now or in an earlier version."""
        source = value.get("source")
        return cls(
            Frontier.from_json(value["frontier"]),
            {int(oid): Frontier.from_json(at) for oid, at in value.get("behind", {}).items()},
            None if source is None else SourceIdentity.from_json(source),
        )
