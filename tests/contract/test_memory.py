"""The contract suite on `memory`, the reference that the others are held against."""

from __future__ import annotations

import pytest

from penstock.destination.contract import Destination
from penstock.destination.memory import (
    MemoryDestination,
    MemoryOptions,
    forget,
    memory_store,
)
from penstock.testing import Adapter, DestinationContract, MemoryChange

PIPELINE = "shop"


class MemoryAdapter(Adapter):
    tells_schema = True

    def __init__(self) -> None:
        forget(PIPELINE)

    def make(self) -> Destination:
        return MemoryDestination(MemoryOptions(), PIPELINE)

    def delivered(self) -> list[MemoryChange]:
        return memory_store(PIPELINE).changes

    def copied(self) -> list[MemoryChange]:
        return memory_store(PIPELINE).copied


class TestMemory(DestinationContract):
    @pytest.fixture
    def adapter(self) -> Adapter:
        return MemoryAdapter()
