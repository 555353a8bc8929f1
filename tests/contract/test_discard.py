"""The contract suite on `discard`, with and without types."""

from __future__ import annotations

import pytest

from penstock.destination.contract import Destination
from penstock.destination.discard import DiscardDestination, DiscardOptions
from penstock.testing import Adapter, DestinationContract


class DiscardAdapter(Adapter):
    keeps = "a count"
    chunk_stands_once = False

    def __init__(self, *, typed: bool) -> None:
        self._options = DiscardOptions(typed=typed)
        self._made: list[DiscardDestination] = []

    def make(self) -> Destination:
        self._made.append(DiscardDestination(self._options, "shop"))
        return self._made[-1]

    def count(self) -> int:
        return sum(destination.changes for destination in self._made)

    def copied_count(self) -> int:
        return sum(destination.copied_rows for destination in self._made)


class TestDiscard(DestinationContract):
    @pytest.fixture(params=["texts", "typed"])
    def adapter(self, request: pytest.FixtureRequest) -> Adapter:
        return DiscardAdapter(typed=request.param == "typed")
