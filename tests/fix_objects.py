"""An object store for tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.objects_server import ObjectServer


@pytest.fixture(scope="session")
def _objects() -> Iterator[ObjectServer]:
    with ObjectServer() as server:
        yield server


@pytest.fixture
def object_server(_objects: ObjectServer) -> Iterator[ObjectServer]:
    """One that runs, shared by all tests; faults and counts are the test's own."""
    _objects.proxy.set()
    _objects.proxy.counts.clear()
    yield _objects
    _objects.proxy.set()
