"""The contract suite on `memory-tables`, the reference member of the family staged merge."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.destination import memory_tables
from penstock.destination.contract import Destination
from penstock.destination.memory_tables import MemoryTablesDestination, MemoryTablesOptions
from penstock.testing import Adapter, DestinationContract, FrozenRow, TableName, frozen

PIPELINE = "shop"


class MemoryTablesAdapter(Adapter):
    keeps = "rows"
    keeps_messages = False
    follows_columns = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: list[Destination] = []

    def make(self) -> Destination:
        options = MemoryTablesOptions(path=self.folder)
        self._made.append(MemoryTablesDestination(options, PIPELINE))
        return self._made[-1]

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        return Counter(map(frozen, memory_tables.read_rows(self.folder, PIPELINE, *name)))

    def close(self) -> None:
        for destination in self._made:
            destination.close()


class InSlices(MemoryTablesAdapter):
    """What tasks staged is joined and merged a few bytes at a time."""

    def make(self) -> Destination:
        destination = super().make()
        destination.bytes_at_once = 64  # type: ignore[attr-defined]
        return destination


class TestMemoryTables(DestinationContract):
    @pytest.fixture
    def adapter(self, tmp_path: Path) -> Iterator[Adapter]:
        adapter = MemoryTablesAdapter(tmp_path)
        yield adapter
        adapter.close()
