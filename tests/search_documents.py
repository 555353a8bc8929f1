"""What a search server holds of tables, for whoever compares it with rows."""

from __future__ import annotations

from typing import Any

from penstock.destination.search.client import SearchClient
from penstock.destination.search.mapping import META
from penstock.destination.search.options import SearchOptions
from penstock.destination.search.scan import scan


def shown_documents(options: SearchOptions, name: str) -> list[dict[str, Any]]:
    """Those that readers find under a table's name, without what is ours. A field that a document
    does not have is null: it is older than the field.
    """
    client = SearchClient(options)
    ((_, about),) = client.call("GET", f"{name}/_mapping", doing="looking").body.items()
    fields = [field for field in about["mappings"]["properties"] if field != META]
    found = [hit["_source"] for hits in scan(client, name) for hit in hits]
    for document in found:
        del document[META]
    return [{**dict.fromkeys(fields), **document} for document in found]


def written_documents(options: SearchOptions, name: str) -> list[dict[str, Any]]:
    """Those of the generation that is written, whether or not readers see it already."""
    answer = SearchClient(options).call("GET", f"_alias/{name}.g*.write", doing="looking")
    if not answer.body:
        return []
    (index,) = answer.body
    return shown_documents(options, index)
