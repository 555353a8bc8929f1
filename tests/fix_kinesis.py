"""A Kinesis for tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kinesis_proxy import Faults
from tests.kinesis_server import KinesisServer, use_test_credentials


def pytest_configure() -> None:
    # Before Spark starts: its workers take the environment over.
    use_test_credentials()


@pytest.fixture(scope="session")
def _kinesis() -> Iterator[KinesisServer]:
    with KinesisServer() as server:
        yield server


@pytest.fixture
def kinesis_server(_kinesis: KinesisServer) -> Iterator[KinesisServer]:
    """One that runs, shared by all tests; faults are the test's own."""
    _kinesis.proxy.set(Faults())
    yield _kinesis
    _kinesis.proxy.set(Faults())
