"""The contract suite on `clickhouse`: the real engine (chdb) and the real client, with our own HTTP
façade between them.
"""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from penstock.destination.clickhouse.destination import ClickHouseDestination
from penstock.destination.clickhouse.options import ClickHouseOptions
from penstock.testing import Adapter, DestinationContract, FrozenRow, TableName, frozen
from tests.clickhouse_rows import written_rows
from tests.clickhouse_server import ClickHouseServer

_numbers = itertools.count(1)


class ClickHouseAdapter(Adapter):
    keeps = "rows"
    keeps_messages = False
    follows_columns = False
    takes_keyless = False
    chunk_waits_for_commit = False
    chunk_is_whole = False

    def __init__(self, url: str) -> None:
        number = next(_numbers)
        self.pipeline = f"shop{number}"
        self.options = ClickHouseOptions(url=url, database=f"{{schema}}_{number}")

    def make(self) -> ClickHouseDestination:
        return ClickHouseDestination(self.options, self.pipeline)

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        return Counter(map(frozen, written_rows(self.make(), *name)))


class TestClickHouse(DestinationContract):
    @pytest.fixture
    def adapter(self, clickhouse_server: ClickHouseServer) -> Adapter:
        return ClickHouseAdapter(clickhouse_server.url)
