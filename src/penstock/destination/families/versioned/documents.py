"""Documents: rows with an id and a version, as Arrow tables.

A document's version is the position of the change that it comes from; that of a copied row is the
point of its snapshot, after every change of that transaction. ``lacks`` is null where the document
is whole. Else it names columns that no change has sent so far, and the id under which the row stood
when the first of its changes came (``of``): the row that is copied from there has them.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destination.families.target import Target
from penstock.model.lsn import Position

Mask = npt.NDArray[np.bool_]

HEAD = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("commit_lsn", pa.int64(), nullable=False),
        pa.field("ordinal", pa.int64(), nullable=False),
        pa.field("deleted", pa.bool_(), nullable=False),
        pa.field("lacks", pa.string()),
    ]
)
"""What each document has. Then its values as Postgres texts: ``c0``, ``c1``, … after the places of
the target's columns. One that is deleted is a tombstone: its values are null.
"""


class DocumentStore(ABC):
    """What a member writes. Pickled to the executors, and used on the driver; opens what it needs.

    Every call is durable when it returns. Each document is written whole or not at all; those of
    one call need not be written together.
    """

    @abstractmethod
    def put(self, target: Target, documents: pa.Table) -> Mask:
        """Store each document whose version is above that of what stands under its id, tombstones
        among them; which ones were stored. Ids occur once.
        """

    @abstractmethod
    def fetch(self, target: Target, ids: pa.Array) -> pa.Table:
        """What stands under these ids as the last writes left it, tombstones among them, in any
        order; and as ``token`` a text that is another once the document was written again.
        """

    @abstractmethod
    def replace(self, target: Target, documents: pa.Table, tokens: pa.Array) -> Mask:
        """Store each document if what stands under its id still has this token; with null: if
        nothing stands there. Which ones were stored. What ``forget_before`` forbids counts as
        stored.
        """

    @abstractmethod
    def forget_before(self, target: Target, position: Position) -> None:
        """Remove all documents with a version below the position, and let later writes of such
        lose. May be called again.
        """

    @abstractmethod
    def lacking(self, target: Target) -> int:
        """How many documents lack columns, tombstones left out. Only nought has to be exact."""

    def close(self) -> None:  # noqa: B027 (some hold nothing)
        """Let go of what is held."""


def document_ids(key: Sequence[pa.Array], prefix: str = "=") -> pa.Array:
    """An id for each key, no two the same."""
    if len(key) == 1:
        return pc.binary_join_element_wise(prefix, key[0].cast(pa.string()), "")
    escaped = [
        pc.replace_substring(pc.replace_substring(part.cast(pa.string()), "~", "~0"), "/", "~1")
        for part in key
    ]
    joined = pc.binary_join_element_wise(*escaped, "/")
    return pc.binary_join_element_wise(prefix, joined, "")


def documents(
    target: Target,
    ids: pa.Array,
    commit_lsn: pa.Array,
    ordinal: pa.Array,
    deleted: Mask,
    columns: Sequence[pa.Array],
) -> pa.Table:
    """Documents that lack nothing."""
    lacks = pa.nulls(len(ids), pa.string())
    head = [ids, commit_lsn, ordinal, pa.array(deleted), lacks]
    fields = [pa.field(f"c{index}", pa.string()) for index in range(len(target.columns))]
    return pa.Table.from_arrays([*head, *columns], schema=pa.schema([*HEAD, *fields]))


def tombstones(rows: pa.Table, ids: pa.Array, lacks: Sequence[str] | None = None) -> pa.Table:
    """Documents that are deleted, under other ids, with the versions of ``rows``."""
    count = rows.num_rows
    head = {
        "id": ids,
        "deleted": pa.array(np.ones(count, bool)),
        "lacks": pa.nulls(count, pa.string()) if lacks is None else pa.array(lacks, pa.string()),
    }
    columns = [
        head.get(field.name, rows.column(field.name))
        if field.name in HEAD.names
        else pa.nulls(count, pa.string())
        for field in rows.schema
    ]
    return pa.Table.from_arrays(columns, schema=rows.schema)


def aligned(ids: pa.Array, found: pa.Table) -> pa.Table:
    """For each id what was found under it, nulls where nothing was."""
    places = pc.index_in(ids, found.column("id").combine_chunks())
    return pa.table({name: found.column(name).take(places) for name in found.column_names})


def version_is_below(one: pa.Table, other: pa.Table) -> Mask:
    """Where a document is older than another, or not there."""
    earlier = pc.or_(
        pc.less(one["commit_lsn"], other["commit_lsn"]),
        pc.and_(
            pc.equal(one["commit_lsn"], other["commit_lsn"]),
            pc.less(one["ordinal"], other["ordinal"]),
        ),
    )
    return mask(pc.fill_null(earlier, True))


def mask(values: Any) -> Mask:
    found: Mask = np.asarray(
        values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy()
    )
    return found


def lack_text(columns: Sequence[str], of: str, **more: Any) -> str:
    return json.dumps({"columns": sorted(columns), "of": of, **more})
