"""What a transaction holds between two of its schema changes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from penstock.decode.changes import ChangeSet, TableChanges
from penstock.transform.step import Step

END = 2**32
"""Beyond every ordinal."""


@dataclass(frozen=True)
class Section(Step):
    """The changes with ``first`` <= ordinal < ``last`` of the one transaction that is read."""

    first: int = 0
    last: int = END

    def apply(self, changes: ChangeSet) -> ChangeSet:
        return ChangeSet(
            tuple(part for table in changes.tables if len(part := self._part(table))),
            tuple(e for e in changes.truncates if self._holds(e.stamp.position.ordinal)),
            tuple(e for e in changes.messages if self._holds(e.stamp.position.ordinal)),
        )

    def _holds(self, ordinal: int) -> bool:
        return self.first <= ordinal < self.last

    def _part(self, changes: TableChanges) -> TableChanges:
        first, last = np.searchsorted(changes.ordinal, [self.first, self.last])
        return changes.part(int(first), int(last))
