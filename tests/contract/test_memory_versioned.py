"""The contract suite on `memory-versioned`, the reference member of the family versioned upsert."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.destination import memory_versioned
from penstock.destination.contract import Destination
from penstock.destination.memory_versioned import (
    MemoryVersionedDestination,
    MemoryVersionedOptions,
)
from penstock.testing import Adapter, DestinationContract, FrozenRow, TableName, frozen

PIPELINE = "shop"


class MemoryVersionedAdapter(Adapter):
    keeps = "rows"
    keeps_messages = False
    follows_columns = False
    takes_keyless = False
    chunk_waits_for_commit = False
    chunk_is_whole = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._made: list[Destination] = []

    def make(self) -> Destination:
        options = MemoryVersionedOptions(path=self.folder)
        self._made.append(MemoryVersionedDestination(options, PIPELINE))
        return self._made[-1]

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        return Counter(map(frozen, memory_versioned.read_rows(self.folder, PIPELINE, *name)))

    def close(self) -> None:
        for destination in self._made:
            destination.close()


class TestMemoryVersioned(DestinationContract):
    @pytest.fixture
    def adapter(self, tmp_path: Path) -> Iterator[Adapter]:
        adapter = MemoryVersionedAdapter(tmp_path)
        yield adapter
        adapter.close()
