"""The destination under test, and the changes that it is given."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.change_builder import ChangeBuilder
from tests.contract.adapters import ADAPTERS, Adapter


@pytest.fixture(params=ADAPTERS)
def adapter(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Adapter:
    return ADAPTERS[request.param](tmp_path, monkeypatch)


@pytest.fixture
def builder() -> ChangeBuilder:
    return ChangeBuilder()
