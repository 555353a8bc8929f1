"""Search servers for tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.elasticsearch_server import Elasticsearch7Server, Elasticsearch8Server
from tests.opensearch_server import OpenSearchServer
from tests.search_server import SearchServer


@pytest.fixture(scope="session")
def opensearch_server() -> Iterator[OpenSearchServer]:
    """One running server, shared by all tests: none of them stops it."""
    with OpenSearchServer() as server:
        yield server


@pytest.fixture(scope="session")
def elasticsearch7_server() -> Iterator[Elasticsearch7Server]:
    """One running server, shared by all tests: none of them stops it."""
    with Elasticsearch7Server() as server:
        yield server


@pytest.fixture(scope="session")
def elasticsearch8_server() -> Iterator[Elasticsearch8Server]:
    """One running server, shared by all tests: none of them stops it."""
    with Elasticsearch8Server() as server:
        yield server


@pytest.fixture(
    scope="session",
    params=[
        "opensearch",
        pytest.param("elasticsearch7", marks=pytest.mark.release),
        pytest.param("elasticsearch8", marks=pytest.mark.release),
    ],
)
def search_server(request: pytest.FixtureRequest) -> SearchServer:
    """A test that asks for it runs with OpenSearch, before a release also with the others."""
    server: SearchServer = request.getfixturevalue(f"{request.param}_server")
    return server
