"""Indexes of a table, beside those that somebody else has made."""

from __future__ import annotations

from typing import Any

from penstock.destination.search.client import SearchAnswer, SearchClient
from penstock.destination.search.generations import Generations
from penstock.destination.search.options import SearchOptions

OPTIONS = SearchOptions.model_validate({"url": "http://nowhere"})


class PlayedServer(SearchClient):
    """Has these indexes, none of which Penstock made."""

    there: set[str]

    def call(self, method: str, path: str, body: Any = None, **_: Any) -> SearchAnswer:
        if method == "GET":
            return SearchAnswer(200, {name: {"aliases": {}} for name in self.there})
        if path in self.there:
            kind = "resource_already_exists_exception"
            return SearchAnswer(400, {"error": {"type": kind, "reason": path}})
        self.there.add(path)
        return SearchAnswer(200, {})


def test_a_number_that_an_index_of_somebody_else_has_is_passed_over() -> None:
    server = PlayedServer(OPTIONS)
    object.__setattr__(server, "there", {"items.g1", "items.g2"})
    body: dict[str, Any] = {"settings": {}, "mappings": {}}
    assert Generations(server, "ours").make("items", 1, body).index == "items.g3"
