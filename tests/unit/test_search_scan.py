"""All documents of an index, or none: what a server leaves out is not taken for the whole."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.destination.search.client import SearchAnswer, SearchClient
from penstock.destination.search.options import SearchOptions
from penstock.destination.search.scan import scan
from penstock.model.errors import DestinationUnavailable

OPTIONS = SearchOptions.model_validate({"url": "http://nowhere"})


class PlayedSearch(SearchClient):
    """Gives these pages, one after the other."""

    pages: list[dict[str, Any]]

    def once(self, method: str, path: str, body: Any = None, **_: Any) -> SearchAnswer:
        if path.endswith("_refresh") or method == "DELETE":
            return SearchAnswer(200, {})
        return SearchAnswer(200, self.pages.pop(0))


def scanned(*pages: dict[str, Any]) -> list[str]:
    client = PlayedSearch(OPTIONS)
    object.__setattr__(client, "pages", list(pages))
    return [hit["_id"] for hits in scan(client, "items") for hit in hits]


def page(*ids: str, total: int = 2, successful: int = 2, failed: int = 0) -> dict[str, Any]:
    shards = {"total": total, "successful": successful, "skipped": 0, "failed": failed}
    hits = [{"_id": each} for each in ids]
    return {"_scroll_id": "s", "_shards": shards, "hits": {"hits": hits}}


def test_a_scan_ends_with_an_empty_page() -> None:
    assert scanned(page("a", "b"), page("c"), page()) == ["a", "b", "c"]


@pytest.mark.parametrize(
    "pages",
    [
        # Shards that have no copy anywhere do not count as failed.
        (page("a", successful=1), page()),
        (page("a", successful=1, failed=1), page()),
        (page("a"), page("b", successful=1, failed=1), page()),
        (page("a"), page(successful=1, failed=1)),
    ],
)
def test_documents_of_shards_that_are_away_are_not_left_out(pages: Any) -> None:
    with pytest.raises(DestinationUnavailable, match="1 of 2 shards"):
        scanned(*pages)
