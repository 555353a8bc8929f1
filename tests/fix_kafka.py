"""A Kafka broker for tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kafka_server import KafkaServer


@pytest.fixture(scope="session")
def kafka_server() -> Iterator[KafkaServer]:
    """One running broker, shared by all tests: none of them stops it."""
    with KafkaServer(secured=True) as server:
        yield server
