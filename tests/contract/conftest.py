"""The destination under test, and the changes that it is given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.change_builder import ChangeBuilder
from tests.contract.adapters import Adapter, PostgresAdapter
from tests.contract.all_adapters import ADAPTERS
from tests.contract.kafka_adapter import KafkaAdapter
from tests.contract.kinesis_adapter import KinesisAdapter


@pytest.fixture(params=ADAPTERS)
def adapter(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Adapter]:
    # Asked for one by one: a server is started for those that need it.
    kind, database = ADAPTERS[request.param], ""
    if issubclass(kind, PostgresAdapter):
        database = request.getfixturevalue("target_url")
    if issubclass(kind, KafkaAdapter):
        kind.brokers = request.getfixturevalue("kafka_server").brokers
    if issubclass(kind, KinesisAdapter):
        kind.server = request.getfixturevalue("kinesis_server")
    made = kind(tmp_path, monkeypatch, database)
    yield made
    made.close()


@pytest.fixture
def builder() -> ChangeBuilder:
    return ChangeBuilder()
