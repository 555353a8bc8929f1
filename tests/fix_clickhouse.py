"""Fixtures with an engine of ClickHouse."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.clickhouse_server import ClickHouseServer


@pytest.fixture(scope="session")
def clickhouse_server() -> Iterator[ClickHouseServer]:
    """One for all tests of a process: each uses a pipeline and databases of its own. Do not stop
    it.
    """
    with ClickHouseServer() as server:
        yield server
