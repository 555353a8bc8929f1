"""Destinations that keep every change: files, change tables, terminals.

A member says how its tasks write, how receipts are committed, and what a schema change looks like
among them.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from penstock.destination.contract import Destination, Receipt, Rows, SchemaChange, TaskWriter
from penstock.destination.protocols import FollowsSchema, TakesCopies
from penstock.model.table_definition import TableDefinition
from penstock.model.watermarks import Watermarks


class AppendDestination(Destination, TakesCopies, FollowsSchema):
    """Keeps history: nothing that was written is changed or removed."""

    def section_writer(self, changes: Sequence[SchemaChange]) -> TaskWriter:
        return self.writer()

    def commit_sections(
        self, sections: Sequence[SchemaChange | Rows], watermarks: Watermarks
    ) -> None:
        receipts: list[Receipt] = []
        for section in sections:
            if isinstance(section, Rows):
                receipts += section.receipts
            else:
                receipts += self.schema_receipts(section)
        self.commit(receipts, watermarks)

    @abstractmethod
    def schema_receipts(self, change: SchemaChange) -> Sequence[Receipt]:
        """What ``commit`` is given for a schema change, in its place among the rows.

        Called by the committing thread. May write what is the same if it is written again.
        """

    def truncate_table(self, table: TableDefinition) -> None:
        """Nothing: the rows of an earlier copy are history, too."""
