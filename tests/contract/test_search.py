"""The contract suite on `search`, with real servers."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from penstock.destination.search.destination import SearchDestination
from penstock.destination.search.options import SearchOptions
from penstock.testing import Adapter, DestinationContract, FrozenRow, TableName, frozen
from tests.elasticsearch_server import Elasticsearch7Server, Elasticsearch8Server
from tests.opensearch_server import OpenSearchServer
from tests.search_documents import written_rows

_numbers = itertools.count(1)


class SearchAdapter(Adapter):
    keeps = "rows"
    keeps_messages = False
    follows_columns = False
    takes_keyless = False
    chunk_waits_for_commit = False
    chunk_is_whole = False

    def __init__(self, url: str) -> None:
        self.pipeline = f"shop{next(_numbers)}"
        self.options = SearchOptions(url=url, replicas=0)

    def make(self) -> SearchDestination:
        return SearchDestination(self.options, self.pipeline)

    def rows(self, name: TableName) -> Counter[FrozenRow]:
        return Counter(map(frozen, written_rows(self.make(), *name)))


class TestSearch(DestinationContract):
    @pytest.fixture
    def adapter(self, opensearch_server: OpenSearchServer) -> Adapter:
        return SearchAdapter(opensearch_server.url)


@pytest.mark.release
class TestElasticsearch7(DestinationContract):
    @pytest.fixture
    def adapter(self, elasticsearch7_server: Elasticsearch7Server) -> Adapter:
        return SearchAdapter(elasticsearch7_server.url)


@pytest.mark.release
class TestElasticsearch8(DestinationContract):
    @pytest.fixture
    def adapter(self, elasticsearch8_server: Elasticsearch8Server) -> Adapter:
        return SearchAdapter(elasticsearch8_server.url)
