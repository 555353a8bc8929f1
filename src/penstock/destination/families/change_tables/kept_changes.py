"""The driver's side of change tables: how they are made, and how they follow the source's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from penstock.destination.contract import SchemaChange
from penstock.destination.families.change_tables.definition import (
    change_table,
    changed,
    fitted,
    is_change_table,
)
from penstock.destination.families.kept_tables import KeptTables
from penstock.destination.families.target import Target
from penstock.model.schema_change import TableChange
from penstock.model.table_definition import TableDefinition


class KeptChanges(KeptTables):
    """Holds rows, or where its capabilities say that it appends, change tables in their place."""

    def _held_as(
        self, table: TableDefinition, there: Target | None
    ) -> tuple[TableDefinition, Target]:
        if self.capabilities.merges:
            return super()._held_as(table, there)
        return change_table(table, there)

    def _left_for(self, table: TableDefinition, left: Mapping[int, Target]) -> Target | None:
        """A change table goes on with what one of the same name left, whose rows are history."""
        found = super()._left_for(table, left)
        if found is not None or self.capabilities.merges:
            return found
        place = self._place(Target.of(table))
        for each in left.values():
            if self._place(each) == place and is_change_table(each):
                return replace(each, oid=table.oid)
        return None

    def _followed(
        self, change: SchemaChange, targets: Mapping[int, Target]
    ) -> dict[int, tuple[TableChange, Target]]:
        found = super()._followed(change, targets)
        if self.capabilities.merges:
            return found
        return {oid: changed(table, targets[oid]) for oid, (table, _) in found.items()}

    def _after(self, change: SchemaChange, targets: Mapping[int, Target]) -> dict[int, Target]:
        return {oid: after for oid, (_, after) in self._followed(change, targets).items()}

    def refit(self, change: TableChange, before: Target, after: Target) -> None:
        """Let a change table fit the source's, where nobody knows when that changed."""
        self.alter(change, before, after)

    def fit_table(self, table: TableDefinition, former: Sequence[TableDefinition]) -> None:
        """A change table keeps what it has. One that held rows until now is made anew."""
        left = self._left()
        places = self._places_before(table, left)
        if self.capabilities.merges or not places:
            super().fit_table(table, former)
        elif not is_change_table(there := places[0]):
            self.drop_table(table)
        else:
            change, target = fitted(table, there)
            if [*places] != [target]:
                with self._changing() as notes:
                    self.refit(change, there, target)
                    self._note_table(target, left, notes)
