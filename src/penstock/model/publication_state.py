"""What a pipeline's publications looked like, so that a change of them by somebody else is noticed,
also one that was undone. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from penstock.model.stored import Stored


@dataclass(frozen=True)
class PublishedTable:
    """``entry`` is the oid of the catalogue's entry for the table: one that left the publication
    and came back has another. ``limits`` says what of its rows is published, empty for all.
    """

    publication: str
    entry: int
    limits: str = ""


@dataclass(frozen=True)
class PublicationOptions:
    """What a publication publishes. ``version`` is that of its row in the catalogue: another
    one means that it was altered, even if nothing is different now.
    """

    version: str
    publish: str
    via_root: bool


@dataclass(frozen=True)
class PublicationState(Stored):
    """Publications by name, and their tables by oid."""

    publications: Mapping[str, PublicationOptions] = field(default_factory=dict)
    tables: Mapping[int, PublishedTable] = field(default_factory=dict)

    def lost(self, now: PublicationState) -> dict[int, str]:
        """Tables of ``now`` of which changes may not have come since this state, and why."""
        found = {}
        for oid, table in now.tables.items():
            before = self.tables.get(oid)
            name = table.publication
            if before is None:
                found[oid] = f"it was not in publication {name} for a while"
            elif before != table:
                found[oid] = f"it left publication {before.publication} and came back"
            elif self.publications.get(name) != now.publications.get(name):
                found[oid] = f"what publication {name} publishes was altered"
        return found

    def came(self, now: PublicationState) -> set[int]:
        """Tables of ``now`` that were not published in this state, or left since and came back."""
        return {oid for oid, table in now.tables.items() if self.tables.get(oid) != table}
