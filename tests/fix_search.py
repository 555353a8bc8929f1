"""Search servers for tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.elasticsearch_server import ElasticsearchServer
from tests.opensearch_server import OpenSearchServer
from tests.search_server import SearchServer


@pytest.fixture(scope="session")
def opensearch_server() -> Iterator[OpenSearchServer]:
    """One running server, shared by all tests: none of them stops it."""
    with OpenSearchServer() as server:
        yield server


@pytest.fixture(scope="session")
def elasticsearch_server() -> Iterator[ElasticsearchServer]:
    """One running server, shared by all tests: none of them stops it."""
    with ElasticsearchServer() as server:
        yield server


@pytest.fixture(
    scope="session",
    params=["opensearch", pytest.param("elasticsearch", marks=pytest.mark.release)],
)
def search_server(request: pytest.FixtureRequest) -> SearchServer:
    """Each of the two: a test that asks for it runs with OpenSearch, before a release with both."""
    server: SearchServer = request.getfixturevalue(f"{request.param}_server")
    return server
