"""What a search server is, and whether it can be written to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from penstock.destination.search.client import SearchClient, part
from penstock.destination.search.failures import failure
from penstock.model.errors import DestinationError

_OLDEST = {"opensearch": (2, 7), "elasticsearch": (7, 10)}
"""OpenSearch has flat_object since then, Elasticsearch writes that need an alias."""


@dataclass(frozen=True)
class Server:
    """``kind`` is ``opensearch`` or ``elasticsearch``."""

    kind: str
    version: str

    @property
    def is_opensearch(self) -> bool:
        return self.kind == "opensearch"


def ask_server(client: SearchClient) -> Server:
    """Raises DestinationError where it is none that we know, or too old."""
    answer = client.call("GET", "", doing="asking for its version")
    version = answer.body.get("version", {}) if isinstance(answer.body, dict) else {}
    number = str(version.get("number", ""))
    found = re.match(r"(\d+)\.(\d+)", number)
    kind = str(version.get("distribution", "elasticsearch"))
    if found is None or kind not in _OLDEST:
        raise DestinationError(
            f"destination search: {client.options.url} answers, but is neither OpenSearch nor "
            "Elasticsearch",
            remedy="see destination.url",
        )
    if (int(found[1]), int(found[2])) < _OLDEST[kind]:
        oldest = ".".join(map(str, _OLDEST[kind]))
        raise DestinationError(
            f"destination search: {client.options.url} is {kind} {number}; {oldest} is the oldest "
            "that will do",
            remedy="upgrade the server",
        )
    return Server(kind, number)


def check_rights(client: SearchClient, ledger: str, sample: str) -> None:
    """Ask for what a pipeline does, in ways that change nothing: of an alias that is not there.

    Raises DestinationError where the user may not do it.
    """
    nothing = f"{sample}.g0.write"
    client.call("GET", f"{part(ledger)}/_doc/none", doing=f"reading {ledger}", allowed=(404,))
    client.call(
        "GET", f"{part(sample)}.g*", doing=f"reading indexes of {sample}", allowed=(404,),
        query={"filter_path": "*.aliases"},
    )  # fmt: skip
    action = {"remove": {"index": f"{sample}.g0", "alias": nothing, "must_exist": True}}
    client.call(
        "POST", "_aliases", {"actions": [action]}, doing=f"changing aliases of {sample}",
        allowed=(400, 404),
    )  # fmt: skip
    answer = client.call(
        "POST", f"{part(nothing)}/_bulk", b'{"delete":{"_id":"none"}}\n',
        doing=f"writing to {sample}", allowed=(404,),
        query={"require_alias": "true"},
    )  # fmt: skip
    for item in answer.body.get("items", ()):
        ((_, told),) = item.items()
        if told["status"] in (401, 403):
            raise failure(client.options.url, f"writing to {sample}", told["status"], told)


def find_blocks(client: SearchClient, prefix: str) -> Iterator[str]:
    """What keeps the cluster, or indexes whose names begin so, from being written."""
    answer = client.call(
        "GET", "_cluster/state/blocks", doing="asking for blocks", allowed=(401, 403),
        query={"filter_path": "blocks"},
    )  # fmt: skip
    if not answer.is_done:
        return
    blocks = answer.body.get("blocks", {})
    for block in blocks.get("global", {}).values():
        yield f"the cluster: {block.get('description', '')}"
    for index, found in blocks.get("indices", {}).items():
        if index.startswith(prefix):
            for block in found.values():
                yield f"{index}: {block.get('description', '')}"
