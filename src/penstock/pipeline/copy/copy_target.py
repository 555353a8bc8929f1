"""The destination as copies see it: one place that asks what it can do."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager, nullcontext

from penstock.destination.contract import Destination
from penstock.destination.protocols import HoldsTables, TakesCopies, TakesReplays
from penstock.model.errors import ConfigError, DestinationError
from penstock.model.table_definition import TableDefinition


class CopyTarget:
    """``copies`` takes the chunks; ``replays``, where rows are merged, the changes after them.
    ``alone`` is what those hold who change the destination beside a stream.

    Raises ConfigError where the destination takes no copies.
    """

    def __init__(
        self, destination: Destination, alone: AbstractContextManager[object] | None = None
    ) -> None:
        if not isinstance(destination, TakesCopies):
            raise ConfigError(
                f"destination {destination.name} does not take rows that are there before the "
                "stream",
                remedy="set source.copy to false: then it gets every change from now on",
            )
        self._destination = destination
        self._alone = nullcontext() if alone is None else alone
        self.copies: TakesCopies = destination
        self._tables = destination if isinstance(destination, HoldsTables) else None

    @property
    def merges(self) -> bool:
        """Whether changes are replayed over copied rows; else they come all the while, and their
        positions say which value is newer.
        """
        return self._destination.capabilities.merges

    @property
    def replays(self) -> TakesReplays:
        """Asked for where ``merges``."""
        if not isinstance(self._destination, TakesReplays):
            raise DestinationError(
                f"destination {self._destination.name} merges rows, and cannot replay changes over "
                "copied ones",
                remedy="this is a bug of the destination: report it to those who made it",
            )
        return self._destination

    def has_foreign_rows(self, table: TableDefinition) -> bool:
        """Whether rows that the pipeline did not bring are in the way."""
        return self._tables is not None and self._tables.has_foreign_rows(table)

    def knows_copy(self, table: int) -> bool:
        """Whether chunks of a table (by oid) that were written are still there."""
        return self._tables is None or self._tables.knows_copy(table)

    def fit(self, table: TableDefinition, former: Sequence[TableDefinition]) -> None:
        """Let a table that is copied next be what the source has. The stream may have met it just
        now, too: whoever comes second finds it made.
        """
        with self._alone:
            if self._tables is not None:
                self._tables.fit_table(table, former)
            self._destination.prepare([table])

    def finish_copy(self, table: TableDefinition) -> None:
        """After the last chunk, before the changes."""
        if self._tables is not None:
            self._tables.finish_copy(table)

    def complete_table(self, table: TableDefinition) -> None:
        """Once the table is what the source has at one point."""
        if self._tables is not None:
            self._tables.complete_table(table)

    def complete_together(self, tables: Collection[int], new: Collection[int]) -> None:
        """Once tables (by oid) stand at one point."""
        if self._tables is not None:
            self._tables.complete_together(tables, new)

    def notes(self, table: int) -> Sequence[str]:
        """What the destination could not make of a table (by oid)."""
        return () if self._tables is None else self._tables.notes(table)

    def is_outdated(self, table: int, note: str) -> bool:
        """Whether a note is true no longer."""
        return self._tables is not None and self._tables.is_outdated(table, note)
