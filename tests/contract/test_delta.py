"""The contract suite on `delta`: real Delta tables in a folder, read back by pyarrow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from penstock.destination.contract import Destination
from penstock.destination.delta.commits import folder_name
from penstock.destination.delta.destination import DeltaDestination
from penstock.destination.delta.options import DeltaOptions
from penstock.testing import Adapter, DestinationContract, FrozenRow, TableName, frozen

PIPELINE = "shop"


def delta_rows(folder: Path, name: TableName) -> list[dict[str, Any]]:
    """The rows of a table as texts."""
    path = folder / folder_name(name[0]) / folder_name(name[1])
    rows = DeltaTable(str(path)).to_pyarrow_table()
    columns = [rows[name].cast(pa.string()) for name in rows.column_names]
    return pa.table(columns, names=rows.column_names).to_pylist()


class DeltaAdapter(Adapter):
    keeps = "rows"
    keeps_messages = False
    follows_columns = False
    takes_keyless = False

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.options = DeltaOptions.model_validate(
            {"path": str(folder), "maintenance": {"every": "never"}}
        )
        self._made: list[Destination] = []

    def make(self) -> Destination:
        self._made.append(DeltaDestination(self.options, PIPELINE))
        return self._made[-1]

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        return Counter(map(frozen, delta_rows(self.folder, name)))

    def close(self) -> None:
        for destination in self._made:
            destination.close()


class TestDelta(DestinationContract):
    @pytest.fixture
    def adapter(self, tmp_path: Path) -> Iterator[Adapter]:
        adapter = DeltaAdapter(tmp_path)
        yield adapter
        adapter.close()
