"""Documents of a table in a new generation, after a schema change that gives them other fields.

They are read and written here, not by the server's own `_reindex`: a script there would round the
numbers of JSON columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from penstock.destination.encode.json_values import TEXT
from penstock.destination.families.target import Target
from penstock.destination.search.bulk import BulkSender, GenerationClosed
from penstock.destination.search.client import SearchClient
from penstock.destination.search.document_lines import index_lines
from penstock.destination.search.exact_json import write_exactly
from penstock.destination.search.failures import unavailable
from penstock.destination.search.generations import Generation
from penstock.destination.search.names import META, field_name
from penstock.destination.search.scan import scan
from penstock.model.errors import TableRefused

Field = tuple[str | None, str, str | None]
"""The name before (None: it is new), the name now, and the JSON value of documents before it."""


def carry_over(
    client: SearchClient, target: Target, old: Generation, new: Generation, fields: Sequence[Field]
) -> None:
    """Nobody writes to either meanwhile. Raises TableRefused where the new index refuses one, and
    DestinationUnavailable where another driver has removed it.
    """
    sender = BulkSender(client, new.filler)
    for hits in scan(client, old.index):
        texts = [_document(hit["_source"], fields) for hit in hits]
        lines = index_lines(
            pa.array([hit["_id"] for hit in hits], pa.string()),
            pa.array(texts, TEXT),
            np.array([hit["_version"] for hit in hits], np.int64),
            "external_gte",
        )
        try:
            outcome = sender.send(lines)
        except GenerationClosed:
            raise unavailable(
                f"destination search: {new.index}, into which documents of {old.index} are carried "
                "over, is gone: another driver has removed it"
            ) from None
        if refused := outcome.refused():
            raise TableRefused(
                f"table {target.qualified_name}: the document {hits[refused[0]]['_id']} does not "
                f"fit the table as it is now: {outcome.reasons.get(refused[0], '')}",
                remedy=f"run `penstock tables resync` for {target.qualified_name}",
                table=target.oid,
            )


def _document(source: dict[str, Any], fields: Sequence[Field]) -> str:
    members = []
    for before, now, value in fields:
        text = value if before is None else write_exactly(source.get(field_name(before)))
        members.append(f"{write_exactly(field_name(now))}:{text or 'null'}")
    members.append(f'"{META}":{write_exactly(source[META])}')
    return "{" + ",".join(members) + "}"
