"""Which schema changes of a transaction are done, where each of them is committed by itself."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from penstock.destination.families.kept_tables import Notes
from penstock.model.lsn import Position

_COUNT = "altered"
"""The note of older versions: a commit, and how many changes of it are done, of all tables."""


def done_note(table: int) -> str:
    """The name of the note with the position of the last change that a table was let follow."""
    return f"{_COUNT}/{table}/"


class DoneChanges:
    """Of each table by itself, by the position of the change: a transaction may come again with
    other tables than before, and under another number.

    ``read`` asks the ledger. What is finished is known to the next driver once ``notes`` are
    written: before the next statement that commits.
    """

    def __init__(self, read: Callable[[str], Mapping[str, str]], pipeline: str) -> None:
        self._read = read
        self._pipeline = pipeline
        self._finished: dict[int, Position] = {}
        self._commit = self._counted = self._number = 0
        self._has_count: bool | None = None
        self.position = Position(0, 0)
        """Of the change that is under way."""

    def forget(self) -> None:
        """The transaction has ended: the ledger knows what counts."""
        self._finished.clear()
        self._has_count = None

    def holds(self, table: int) -> bool:
        """Whether the ledger knows that the change is done with a table."""
        note = self._read(done_note(table)).get(done_note(table))
        return note is not None and Position(*json.loads(note)) >= self.position

    def finish(self, table: int) -> None:
        self._finished[table] = self.position

    def mark(self, table: int) -> str:
        """What a table is marked with that is made anew for the change, and no other one."""
        return f"penstock {self._pipeline} {self.position}/{table}"

    def notes(self) -> Notes:
        """What is done by now."""
        notes: Notes = {done_note(oid): json.dumps(at) for oid, at in self._finished.items()}
        if self._has_count:
            left = [self._commit, self._counted, self._number]
            notes[_COUNT] = json.dumps(left) if self._commit else None
        return notes

    def forgotten(self, table: int) -> Notes:
        """Notes for the transaction that ends: its changes do not come again."""
        notes: Notes = {done_note(table): None}
        return {**notes, _COUNT: None} if self._read(_COUNT).get(_COUNT) else notes

    # -- what older versions left ----------------------------------------------------------------

    def is_counted(self, commit: int) -> bool:
        """Whether an older version counted a change as done, which comes first of those left."""
        self._look(commit)
        return self._counted > 0

    def take_from_count(self) -> None:
        """A change that was counted has a note of its own from now on."""
        self._counted -= 1

    def marks(self, table: int, commit: int) -> tuple[str, ...]:
        """The mark of the change, and the one that an older version may have given it: that was
        busy with the first change which it did not count.
        """
        self._look(commit)
        if not self._commit:
            return (self.mark(table),)
        self._commit = 0
        return self.mark(table), f"penstock {self._pipeline} {commit}/{self._number}"

    def _look(self, commit: int) -> None:
        """``commit`` is the number that the transaction gets."""
        if self._has_count is not None:
            return
        note = self._read(_COUNT).get(_COUNT)
        self._has_count = note is not None
        of, counted, *number = json.loads(note or "[0, 0]")
        is_of_this = of == commit
        self._commit = commit if is_of_this else 0
        self._counted = counted if is_of_this else 0
        self._number = number[0] if number else counted + 1
