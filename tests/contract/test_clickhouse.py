"""The contract suite on `clickhouse`: the real engine (chdb) and the real client, with our own HTTP
façade between them.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any, ClassVar, Literal

import pytest

from penstock.destination.clickhouse.destination import ClickHouseDestination
from penstock.destination.clickhouse.options import ClickHouseOptions
from penstock.testing import Adapter, DestinationContract, FrozenRow, TableName, frozen
from penstock.testing.change_builder import ChangeBuilder
from penstock.testing.contract.deliveries import assert_delivered, deliver, opened, reference
from tests.clickhouse_rows import latest_rows, shown_rows, written_rows
from tests.clickhouse_server import ClickHouseServer
from tests.lake_changes import ChangeTables, Keeps
from tests.warehouse_drivers import every_kind_of_change, expect_rows_left

_numbers = itertools.count(1)


class ClickHouseAdapter(Adapter):
    keeps: ClassVar[Keeps] = "rows"
    keeps_messages = False
    follows_columns = False
    takes_keyless = False
    chunk_waits_for_commit = False
    chunk_is_whole = False

    def __init__(self, url: str, mode: Literal["merge", "append"] = "merge") -> None:
        number = next(_numbers)
        self.pipeline = f"shop{number}"
        self.options = ClickHouseOptions(url=url, database=f"{{schema}}_{number}", mode=mode)

    def make(self) -> ClickHouseDestination:
        return ClickHouseDestination(self.options, self.pipeline)

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        return Counter(map(frozen, written_rows(self.make(), *name)))


class ClickHouseChangeTables(ChangeTables, ClickHouseAdapter):
    def __init__(self, url: str) -> None:
        super().__init__(url, "append")

    def change_tables(self) -> Iterator[tuple[TableName, list[dict[str, Any]]]]:
        destination = self.make()
        for target in destination._known().values():
            name = target.schema, target.name
            yield (
                name,
                [
                    {**row, "_unset": _listed(row["_unset"])}
                    for row in shown_rows(destination, *name)
                ],
            )


class ClickHouseLatestRows(ClickHouseAdapter):
    """What the views over change tables show."""

    def __init__(self, url: str) -> None:
        super().__init__(url, "append")

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        return Counter(map(frozen, latest_rows(self.make(), *name)))


def _listed(text: str | None) -> str | None:
    return None if text is None else f"[{', '.join(json.loads(text))}]"


class TestClickHouse(DestinationContract):
    @pytest.fixture(
        params=[
            ClickHouseAdapter,
            pytest.param(ClickHouseChangeTables, marks=pytest.mark.release),
        ],
        ids=["merge", "append"],
    )
    def adapter(
        self, request: pytest.FixtureRequest, clickhouse_server: ClickHouseServer
    ) -> Adapter:
        adapter: Adapter = request.param(clickhouse_server.url)
        return adapter


def test_the_view_over_a_change_table_shows_the_rows(clickhouse_server: ClickHouseServer) -> None:
    expect_rows_left(ClickHouseLatestRows(clickhouse_server.url))


def test_changes_that_come_again_stand_once(clickhouse_server: ClickHouseServer) -> None:
    """A driver died before its commit, and the next has other tasks."""
    adapter = ClickHouseChangeTables(clickhouse_server.url)
    builder = ChangeBuilder()
    first, second = every_kind_of_change(builder), every_kind_of_change(builder)
    opened(adapter).writer().write([first, second])
    destination = opened(adapter)
    assert destination.committed() is None
    deliver(destination, builder.frontier, [first], [second])
    assert_delivered(adapter, reference(first, second))
