"""Schema changes that tables were let follow before the ledger tells of their transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.destination.families.ledger import Ledger
from penstock.destination.families.target import Target
from penstock.model.lsn import Position

_KIND = "begun"


@dataclass(frozen=True)
class BegunChange:
    """The last schema change that was begun with a table, of a transaction that was not finished.

    The table is what it was ``before`` it, or is ``after`` it already. What comes earlier in the
    transaction is done.
    """

    position: Position
    before: Target
    after: Target

    def to_text(self) -> str:
        return json.dumps([self.position, self.before.to_text(), self.after.to_text()])

    @classmethod
    def from_text(cls, text: str) -> BegunChange:
        position, before, after = json.loads(text)
        return cls(Position(*position), Target.from_text(before), Target.from_text(after))


def begun_note(table: int) -> str:
    """The name of the note of a table, by its oid."""
    return f"{_KIND}/{table}/"


def begun_changes(ledger: Ledger) -> Mapping[int, BegunChange]:
    """Those that the ledger knows of, by their table's oid."""
    found = map(BegunChange.from_text, ledger.read(f"{_KIND}/").values())
    return {change.after.oid: change for change in found}
