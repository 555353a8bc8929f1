"""The contract suite on `memory-tables`, the reference member of the family staged merge."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from penstock.destination import memory_tables
from penstock.destination.contract import Destination
from penstock.destination.families.target import Target
from penstock.destination.memory_tables import MemoryTablesDestination, MemoryTablesOptions
from penstock.testing import Adapter, DestinationContract, FrozenRow, TableName, frozen
from penstock.testing.change_builder import ChangeBuilder, Column, table
from penstock.testing.contract.deliveries import definition, deliver, insert_items, opened

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


class _Asked(dict[int, Target]):
    """Tables that call ``look`` once whenever all of them are read."""

    look: Callable[[], object] | None = None

    def __iter__(self) -> Iterator[int]:
        return iter(self.keys())

    def keys(self) -> Any:
        look, self.look = self.look, None
        if look is not None:
            look()
        return super().keys()


def test_a_table_that_is_prepared_while_a_commit_ends_is_not_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each thread knows the other's tables."""
    adapter = MemoryTablesAdapter(tmp_path)
    destination, builder = opened(adapter), ChangeBuilder()
    assert isinstance(destination, MemoryTablesDestination)
    tables = _Asked(destination._targets)
    destination._targets = tables
    also = table("also", Column("id", "int8", key=True))
    beside = threading.Thread(target=lambda: destination.prepare([definition(also)]))

    def prepare_beside() -> None:
        beside.start()
        beside.join(0.3)

    write = destination.ledger.write

    def last(driver: int, notes: Mapping[str, str | None]) -> None:
        write(driver, notes)
        if "progress" in notes:
            tables.look = prepare_beside

    monkeypatch.setattr(destination.ledger, "write", last)
    deliver(destination, builder.frontier, [insert_items(builder, 0, 1)])
    beside.join()
    assert destination._targets.keys() == {*tables, also.oid}
    adapter.close()
