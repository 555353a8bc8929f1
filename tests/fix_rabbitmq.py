"""A RabbitMQ for tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.rabbitmq_server import RabbitServer


@pytest.fixture(scope="session")
def rabbit_server() -> Iterator[RabbitServer]:
    """One that runs, shared by all tests: none of them stops it."""
    with RabbitServer() as server:
        yield server
