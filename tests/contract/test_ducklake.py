"""The contract suite on `ducklake`, a real DuckDB, with its catalogue in a file and in Postgres."""

# ruff: noqa: S608 - names are quoted.

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.destination.contract import Destination
from penstock.destination.ducklake.destination import DucklakeDestination
from penstock.destination.ducklake.lake import Lake
from penstock.destination.ducklake.names import NO_COLUMNS, quoted
from penstock.destination.ducklake.options import DucklakeOptions
from penstock.testing import Adapter, DestinationContract, FrozenRow, TableName, frozen

PIPELINE = "shop"


def lake_rows(lake: Lake, name: TableName) -> list[dict[str, Any]]:
    """The rows of a table as texts."""
    with lake.session() as session:
        table = f"{quoted(name[0])}.{quoted(name[1])}"
        found = session.execute(f"SELECT CAST(COLUMNS(*) AS VARCHAR) FROM {table}")
        names = [column[0] for column in found.description or []]
        rows = [dict(zip(names, row, strict=True)) for row in found.fetchall()]
    return [{column: row[column] for column in row if column != NO_COLUMNS} for row in rows]


class DucklakeAdapter(Adapter):
    keeps = "rows"
    keeps_messages = False
    follows_columns = False

    def __init__(self, folder: Path, catalog: str | None = None) -> None:
        place = {"catalog": catalog} if catalog else {"catalog_file": str(folder / "meta.ducklake")}
        self.options = DucklakeOptions.model_validate(
            {**place, "data_path": str(folder / "data"), "maintenance": {"every": "never"}}
        )
        self._made: list[Destination] = []
        self._reader = Lake(self.options)

    def make(self) -> Destination:
        self._made.append(DucklakeDestination(self.options, PIPELINE))
        return self._made[-1]

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        return Counter(map(frozen, lake_rows(self._reader, name)))

    def close(self) -> None:
        self._reader.close()
        for destination in self._made:
            destination.close()


class TestDucklake(DestinationContract):
    @pytest.fixture(params=["file", pytest.param("postgres", marks=pytest.mark.release)])
    def adapter(self, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Adapter]:
        catalog = request.getfixturevalue("database") if request.param == "postgres" else None
        adapter = DucklakeAdapter(tmp_path, catalog)
        yield adapter
        adapter.close()
