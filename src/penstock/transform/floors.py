"""Which changes a table still wants, where tables do not all stand at the same position."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from penstock.decode.changes import ChangeSet, TableChanges
from penstock.model.watermarks import Watermarks
from penstock.transform.step import Step


@dataclass(frozen=True)
class Floors(Step):
    """A change counts if its commit LSN is above its table's floor.

    ``general`` is the floor of all that ``tables`` (by oid) does not name. Nothing of the tables in
    ``left_out`` counts, nor of any that ``known`` does not name, unless that is None.
    """

    general: int = 0
    tables: Mapping[int, int] = field(default_factory=dict)
    left_out: frozenset[int] = frozenset()
    known: frozenset[int] | None = None

    @classmethod
    def of_stream(
        cls, at: Watermarks, set_aside: Collection[int], known: Collection[int] | None = None
    ) -> Floors:
        """What no table has got yet of a reading for all that are not set aside.

        With ``known``, nothing of other tables counts.
        """
        return cls(
            at.frontier.commit_lsn,
            {oid: own.commit_lsn for oid, own in at.catching_up(set_aside).items()},
            frozenset(set_aside),
            None if known is None else frozenset(known),
        )

    @classmethod
    def of_tables(cls, at: Watermarks, tables: Collection[int]) -> Floors:
        """What these tables have not got yet, of a reading that is for nobody else."""
        return cls(
            at.frontier.commit_lsn,
            {oid: at.at(oid).commit_lsn for oid in tables},
            known=frozenset(tables),
        )

    def apply(self, changes: ChangeSet) -> ChangeSet:
        """The changes that count."""
        return ChangeSet(
            tuple(part for table in changes.tables if len(part := self._above(table))),
            tuple(
                replace(event, tables=tables)
                for event in changes.truncates
                if (
                    tables := tuple(
                        table
                        for table in event.tables
                        if self.wants(table.oid, event.stamp.position.commit_lsn)
                    )
                )
            ),
            tuple(
                event
                for event in changes.messages
                if event.stamp.position.commit_lsn > self.general
            ),
        )

    def wants(self, oid: int, commit_lsn: int) -> bool:
        """Whether a table still wants what was committed there."""
        return not self._is_left_out(oid) and commit_lsn > self.tables.get(oid, self.general)

    def _is_left_out(self, oid: int) -> bool:
        return oid in self.left_out or (self.known is not None and oid not in self.known)

    def _above(self, changes: TableChanges) -> TableChanges:
        oid, count = changes.table.oid, len(changes)
        if self._is_left_out(oid):
            return changes.part(0, 0)
        floor = self.tables.get(oid, self.general)
        if not count or changes.commit_lsn[0] > floor:
            return changes
        return changes.part(int(np.searchsorted(changes.commit_lsn, floor, "right")), count)
