"""An OpenSearch server for tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.opensearch_server import OpenSearchServer


@pytest.fixture(scope="session")
def opensearch_server() -> Iterator[OpenSearchServer]:
    """One running server, shared by all tests: none of them stops it."""
    with OpenSearchServer() as server:
        yield server
