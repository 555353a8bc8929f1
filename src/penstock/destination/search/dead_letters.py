"""Documents that the server refused, kept in an index of our own for a person to look at."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.destination.search.client import SearchClient, part
from penstock.destination.search.names import dead_letter_index
from penstock.destination.search.options import SearchOptions
from penstock.destination.search.scan import scan
from penstock.model.lsn import Position

if TYPE_CHECKING:
    # `penstock status` counts letters, and needs none of what writes rows.
    from penstock.destination.families.target import Target

_INDEX = {
    "settings": {"index.number_of_shards": 1, "index.auto_expand_replicas": "0-1"},
    "mappings": {
        "dynamic": False,
        "properties": {
            "pipeline": {"type": "keyword"},
            "table": {"type": "keyword"},
            "id": {"type": "keyword", "ignore_above": 8191},
            "position": {"type": "keyword"},
            "reason": {"type": "text"},
        },
    },
}
_LARGEST = 1024 * 1024


@dataclass(frozen=True)
class DeadLetters:
    """Used on executors, where documents are refused, and on the driver."""

    client: SearchClient
    index: str
    pipeline: str

    @classmethod
    def of(cls, options: SearchOptions, pipeline: str) -> DeadLetters:
        return cls(SearchClient(options), dead_letter_index(options, pipeline), pipeline)

    def make(self) -> None:
        self.client.call(
            "PUT", part(self.index), _INDEX, doing=f"making the index {self.index}", allowed=(400,)
        )

    def keep(self, target: Target, letters: Sequence[tuple[str, Position, str, str]]) -> None:
        """Put down id, position, reason and document of each. The same one stands once."""
        for key, position, reason, document in letters:
            about = {
                "pipeline": self.pipeline,
                "table": target.qualified_name,
                "id": key,
                "position": str(position),
                "reason": reason,
            }
            name = f"{self.pipeline}/{target.oid}/{key}/{position}"
            path = f"{part(self.index)}/_doc/{hashlib.sha256(name.encode()).hexdigest()}"
            longest = _LARGEST
            # What was too large in itself may be so here: then as much of it as goes in.
            while not self._put(path, about, document, longest):
                longest //= 2

    def _put(self, path: str, about: Mapping[str, str], document: str, longest: int) -> bool:
        """False where it is too large."""
        whole = {"document": document[:longest], "is_whole": len(document) <= longest}
        allowed = (413,) if longest else ()
        answer = self.client.call(
            "PUT", path, {**about, **whole}, doing="keeping a refused document", allowed=allowed
        )
        return answer.is_done

    def forget(self, table: str) -> None:
        """Those of a table whose rows all come again."""
        if table not in self.count():
            return
        query = {"bool": {"filter": [*self._mine()["bool"]["filter"], {"term": {"table": table}}]}}
        for hits in scan(self.client, self.index, query):
            for hit in hits:
                path = f"{part(self.index)}/_doc/{part(hit['_id'])}"
                self.client.call("DELETE", path, doing="forgetting dead letters", allowed=(404,))

    def count(self) -> Mapping[str, int]:
        """How many of each source table."""
        self._refresh()
        tables = {"terms": {"field": "table", "size": 10_000, "order": {"_key": "asc"}}}
        answer = self.client.call(
            "POST", f"{part(self.index)}/_search",
            {"size": 0, "query": self._mine(), "aggs": {"tables": tables}},
            doing="counting dead letters", allowed=(404,),
        )  # fmt: skip
        if answer.status == 404:
            return {}
        buckets = answer.body["aggregations"]["tables"]["buckets"]
        return {bucket["key"]: bucket["doc_count"] for bucket in buckets}

    def _mine(self) -> dict[str, dict[str, list[dict[str, object]]]]:
        return {"bool": {"filter": [{"term": {"pipeline": self.pipeline}}]}}

    def _refresh(self) -> None:
        path = f"{part(self.index)}/_refresh"
        self.client.call("POST", path, doing="counting dead letters", allowed=(404,))


def count_dead_letters(options: SearchOptions, pipeline: str) -> Mapping[str, int]:
    """`penstock status` calls it. Raises DestinationError where the destination does not answer."""
    return DeadLetters.of(options, pipeline).count()
