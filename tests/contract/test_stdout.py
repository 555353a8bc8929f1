"""The contract suite on `stdout`."""

from __future__ import annotations

import io
from types import SimpleNamespace

import pytest

from penstock.destination import stdout
from penstock.destination.contract import Destination
from penstock.destination.stdout import StdoutDestination, StdoutOptions
from penstock.testing import (
    Adapter,
    DestinationContract,
    MemoryChange,
    change_from_json,
    parse_lines,
)


class StdoutAdapter(Adapter):
    tells_schema = True
    chunk_stands_once = False

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        # pytest puts its own sys.stdout in place between a fixture and its test.
        self._written = io.BytesIO()
        terminal = SimpleNamespace(stdout=SimpleNamespace(buffer=self._written))
        monkeypatch.setattr(stdout, "sys", terminal)

    def make(self) -> Destination:
        return StdoutDestination(StdoutOptions(), "shop")

    def delivered(self) -> list[MemoryChange]:
        return [change for change in self._changes() if change.op != "read"]

    def copied(self) -> list[MemoryChange]:
        return [change for change in self._changes() if change.op == "read"]

    def _changes(self) -> list[MemoryChange]:
        return [change_from_json(event) for event in parse_lines(self._written.getvalue())]


class TestStdout(DestinationContract):
    @pytest.fixture
    def adapter(self, monkeypatch: pytest.MonkeyPatch) -> Adapter:
        return StdoutAdapter(monkeypatch)
