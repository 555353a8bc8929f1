"""A Kinesis for tests."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.kinesis_proxy import Faults
from tests.kinesis_server import KinesisServer


def pytest_configure() -> None:
    # Before Spark starts: its workers take the environment over. Nothing that a test does can
    # reach an account that the machine has credentials for.
    os.environ["AWS_ACCESS_KEY_ID"] = os.environ["AWS_SECRET_ACCESS_KEY"] = "testing"
    os.environ.pop("AWS_SESSION_TOKEN", None)
    os.environ.pop("AWS_PROFILE", None)
    os.environ["AWS_EC2_METADATA_DISABLED"] = "true"


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
