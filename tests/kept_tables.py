"""A destination of tests that holds tables, as far as the driver can tell."""

from __future__ import annotations

from collections.abc import Sequence

from penstock.destination.protocols import HoldsTables
from penstock.model.table_definition import TableDefinition


class KeptTables(HoldsTables):
    """Goes beside a real destination; ``dropped`` are the oids of tables that were removed, and
    ``let_go_of`` of those that stay.
    """

    dropped: list[int]
    let_go_of: list[int]

    def has_foreign_rows(self, table: TableDefinition) -> bool:
        return False

    def fit_table(self, table: TableDefinition, former: Sequence[TableDefinition]) -> None: ...

    def finish_copy(self, table: TableDefinition) -> None: ...

    def complete_table(self, table: TableDefinition) -> None: ...

    def drop_table(self, table: TableDefinition) -> None:
        self.dropped.append(table.oid)

    def let_go(self, table: TableDefinition) -> None:
        self.let_go_of.append(table.oid)

    def notes(self, table: int) -> Sequence[str]:
        return ()
