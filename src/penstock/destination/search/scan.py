"""All documents of an index, piece by piece."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from penstock.destination.search.client import SearchClient, part
from penstock.destination.search.failures import failure, unavailable
from penstock.model.errors import DestinationUnavailable

_AT_ONCE = 500
_KEPT = "10m"


def scan(
    client: SearchClient, index: str, query: dict[str, Any] | None = None
) -> Iterator[list[dict[str, Any]]]:
    """Those that a refresh of the index shows now, with their versions; numbers keep their digits.

    Raises DestinationError where an answer is lost, or lacks the documents of a shard: whoever asks
    begins anew.
    """
    doing = f"reading {index}"
    client.call("POST", f"{part(index)}/_refresh", doing=doing)
    wanted = {"size": _AT_ONCE, "version": True, "sort": ["_doc"]}
    wanted["query"] = query or {"match_all": {}}
    answer = client.call(
        "POST",
        f"{part(index)}/_search",
        wanted,
        doing=doing,
        is_exact=True,
        query={"scroll": _KEPT},
    )
    try:
        while hits := _whole(answer.body, doing, client.options.url)["hits"]["hits"]:
            yield hits
            more = {"scroll": _KEPT, "scroll_id": answer.body["_scroll_id"]}
            # Never made twice: one whose answer is lost took its piece along.
            answer = client.once("POST", "_search/scroll", more, doing=doing, is_exact=True)
            if not answer.is_done:
                raise failure(client.options.url, doing, answer.status, answer.body)
    finally:
        # It ends by itself, too: nothing depends on the answer.
        with suppress(DestinationUnavailable):
            scroll = {"scroll_id": answer.body.get("_scroll_id", "")}
            client.once("DELETE", "_search/scroll", scroll, doing=doing)


def _whole(body: dict[str, Any], doing: str, url: str) -> dict[str, Any]:
    """An answer of all shards; servers leave out, with a success, those that are away."""
    total, there = body["_shards"]["total"], body["_shards"]["successful"]
    if there < total:
        raise unavailable(
            f"destination search: {doing} at {url} failed: {total - there} of {total} shards did "
            "not answer"
        )
    return body
