"""The destination under test, and the changes that it is given."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.change_builder import ChangeBuilder
from tests.contract.adapters import ADAPTERS, Adapter


@pytest.fixture(params=ADAPTERS)
def adapter(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    target_url: str,
) -> Iterator[Adapter]:
    made = ADAPTERS[request.param](tmp_path, monkeypatch, target_url)
    yield made
    made.close()


@pytest.fixture
def builder() -> ChangeBuilder:
    return ChangeBuilder()
