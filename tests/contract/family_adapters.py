"""The reference members of the families, as the suite makes them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from penstock.destination import memory_tables, memory_versioned
from penstock.destination.contract import Destination
from penstock.destination.memory import MemoryChange, TableName
from penstock.destination.memory_tables import MemoryTablesDestination, MemoryTablesOptions
from penstock.destination.memory_versioned import (
    MemoryVersionedDestination,
    MemoryVersionedOptions,
)
from tests.contract.adapters import PIPELINE, Adapter
from tests.contract.merge_model import FrozenRow, frozen


class RowsAdapter(Adapter):
    """Of a member that keeps rows in a file."""

    keeps = "rows"
    keeps_messages = False

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, database: str) -> None:
        super().__init__(folder, monkeypatch, database)
        self.made: list[Destination] = []

    def delivered(self) -> list[MemoryChange]:
        raise NotImplementedError("it keeps rows")

    def close(self) -> None:
        for destination in self.made:
            destination.close()


class MemoryTablesAdapter(RowsAdapter):
    follows_columns = False

    def make(self) -> Destination:
        options = MemoryTablesOptions(path=self.folder)
        self.made.append(MemoryTablesDestination(options, PIPELINE))
        return self.made[-1]

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        return Counter(map(frozen, memory_tables.read_rows(self.folder, PIPELINE, *name)))


class MemoryVersionedAdapter(RowsAdapter):
    follows_columns = False
    chunk_waits_for_commit = False
    changes_keyless = False

    def make(self) -> Destination:
        options = MemoryVersionedOptions(path=self.folder)
        self.made.append(MemoryVersionedDestination(options, PIPELINE))
        return self.made[-1]

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        return Counter(map(frozen, memory_versioned.read_rows(self.folder, PIPELINE, *name)))
