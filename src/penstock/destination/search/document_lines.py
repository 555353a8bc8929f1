"""Documents as the lines of bulk requests."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destination.encode.json_values import TEXT, escaped, join, joined, number_texts
from penstock.destination.search.names import META, field_name
from penstock.model.errors import DestinationError

Ints = npt.NDArray[np.int64]

_ORDINAL_BITS = 11
LAST_ORDINAL = (1 << _ORDINAL_BITS) - 1
"""Changes of a transaction from this one on share a version, and so do copied rows."""

_LARGEST_LSN = 1 << 55


def versions(commit_lsn: Ints, ordinal: Ints) -> Ints:
    """Positions as external versions, which are positive and have 63 bits.

    Commits begin at multiples of 8, and no two are nearer to each other than 32 bytes. Raises
    DestinationError beyond 32 PiB of WAL.
    """
    if len(commit_lsn) and int(commit_lsn.max()) >= _LARGEST_LSN:
        raise DestinationError(
            "destination search: the source has written more than 32 PiB of WAL, and positions "
            "beyond that have no room in a document's version",
            remedy="move the source to a new cluster (pg_dump, logical replication)",
        )
    found: Ints = (commit_lsn >> 3 << _ORDINAL_BITS) | np.minimum(ordinal, LAST_ORDINAL)
    return found


def row_versions(rows: pa.Table) -> Ints:
    """The same of documents."""
    return versions(rows["commit_lsn"].to_numpy(), rows["ordinal"].to_numpy())


def documents_of(columns: Sequence[str], rows: pa.Table) -> pa.Array:
    """What documents hold, as JSON texts."""
    parts: list[pa.Array | str] = ["{"]
    for index, name in enumerate(columns):
        values = rows[f"c{index}"].combine_chunks()
        if values.null_count:
            values = pc.fill_null(values, pa.scalar("null", TEXT))
        parts += [f"{json.dumps(field_name(name), ensure_ascii=False)}:", values, ","]
    lsn, ordinal = rows["commit_lsn"].to_numpy(), rows["ordinal"].to_numpy()
    parts += [f'"{META}":{{"lsn":', number_texts(lsn), ',"ordinal":', number_texts(ordinal), "}}"]
    return joined(parts, rows.num_rows)


def index_lines(ids: pa.Array, documents: pa.Array, version: Ints, kind: str) -> pa.Array:
    """Lines that put documents under ids; ``kind`` is the version's type."""
    return join(
        '{"index":{"_id":"',
        escaped(ids.cast(TEXT)),
        '","version":',
        pa.array(version).cast(TEXT),
        f',"version_type":"{kind}"}}}}\n',
        documents,
        "\n",
    )


def delete_lines(ids: pa.Array, version: Ints, kind: str) -> pa.Array:
    """Lines that delete what stands under ids."""
    return join(
        '{"delete":{"_id":"',
        escaped(ids.cast(TEXT)),
        '","version":',
        pa.array(version).cast(TEXT),
        f',"version_type":"{kind}"}}}}\n',
    )
