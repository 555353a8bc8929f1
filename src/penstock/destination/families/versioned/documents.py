"""Documents: rows with an id and a version, as Arrow tables.

A document's version is the position of the change that it comes from; that of a copied row is the
point of its snapshot, after every change that the snapshot has.
"""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destination.families.target import Target
from penstock.model.lsn import Position
from penstock.model.table_schema import PgType

Mask = npt.NDArray[np.bool_]

HEAD = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("commit_lsn", pa.int64(), nullable=False),
        pa.field("ordinal", pa.int64(), nullable=False),
        pa.field("deleted", pa.bool_(), nullable=False),
    ]
)
"""Behind these stand the values: ``c0``, ``c1``, … as the store writes them, null where the row has
none. Of those a tombstone has the key's alone.
"""

_LONGEST_ID = 500


class DocumentStore(ABC):
    """Where documents are. Pickled to the executors, and used on the driver; opens what it needs.

    Every call is durable when it returns. Each document is written whole or not at all; those of
    one call need not be written together.
    """

    resent: int = 0
    """How many documents did not arrive at first, and were sent again."""

    @property
    def unfit(self) -> Mapping[int, Mapping[str, int]]:
        """How many values became others, by table and column: its types cannot hold them."""
        return {}

    def values(self, text: pa.Array, pg_type: PgType) -> pa.Array:
        """A column of Postgres texts as the store writes it. Called by whoever encodes."""
        return text

    @abstractmethod
    def put(self, target: Target, documents: pa.Table) -> None:
        """Store each document whose version is above that of what stands under its id, tombstones
        among them. The others lose. Ids occur once.
        """

    @abstractmethod
    def fetch(self, target: Target, keys: pa.Table) -> pa.Table:
        """What stands under these keys (``key_rows``) as the last writes left it, in any order.
        Tombstones may be among it.
        """

    @abstractmethod
    def is_passed(self, target: Target, documents: pa.Table) -> Mask:
        """Of documents under whose ids ``fetch`` found no row: where one was, and was deleted or
        forgotten at a later version than theirs, as far as the store remembers that.
        """

    @abstractmethod
    def forget_before(self, target: Target, position: Position) -> None:
        """Remove all documents with a version below the position, and let later writes of such
        lose. May be called again.
        """

    def close(self) -> None:  # noqa: B027 (some hold nothing)
        """Let go of what is held."""


def document_ids(key: Sequence[pa.Array]) -> pa.Array:
    """An id for each key, no two the same, of at most 512 bytes, and never empty."""
    texts = [pc.replace_substring(part.cast(pa.string()), "~", "~0") for part in key]
    if len(texts) == 1:
        ids = texts[0]
        ids = pc.if_else(pc.equal(ids, ""), "~", ids)
    else:
        escaped = [pc.replace_substring(part, "/", "~1") for part in texts]
        ids = pc.binary_join_element_wise(*escaped, "/")
    is_long = pc.greater(pc.binary_length(ids), _LONGEST_ID)
    if not pc.any(is_long).as_py():
        return ids
    hashes = [
        f"~h{hashlib.sha256(text.encode()).hexdigest()}" for text in ids.filter(is_long).to_pylist()
    ]
    return pc.replace_with_mask(ids, is_long, pa.array(hashes, pa.string()))


def numbered_ids(prefix: str, *numbers: npt.NDArray[np.int64]) -> pa.Array:
    """Ids of rows that no key tells apart, by numbers that do."""
    texts = [pa.array(each).cast(pa.string()) for each in numbers]
    joined = pc.binary_join_element_wise(*texts, "/")
    return pc.binary_join_element_wise(prefix, joined, "")


def documents(
    target: Target,
    ids: pa.Array,
    commit_lsn: npt.NDArray[np.int64],
    ordinal: npt.NDArray[np.int64],
    deleted: Mask,
    columns: Sequence[pa.Array],
) -> pa.Table:
    """Documents of these values."""
    head = [ids, pa.array(commit_lsn), pa.array(ordinal), pa.array(deleted)]
    texts = [column.cast(pa.large_string()) for column in columns]
    return pa.Table.from_arrays([*head, *texts], schema=document_schema(target))


def document_schema(target: Target) -> pa.Schema:
    """What documents of a table look like."""
    names = [f"c{index}" for index in range(len(target.columns))]
    # Sixty-four bit offsets: values may be longer than their texts, and a batch is large.
    return pa.schema([*HEAD, *(pa.field(name, pa.large_string()) for name in names)])


def key_rows(target: Target, ids: pa.Array, key: Sequence[pa.Array]) -> pa.Table:
    """Ids with the values of the key that they are of, as the store writes them."""
    values = {
        f"c{index}": text.cast(pa.large_string())
        for index, text in zip(target.key, key, strict=True)
    }
    return pa.table({"id": ids, **values})


def tombstones(
    target: Target,
    keys: pa.Table,
    commit_lsn: npt.NDArray[np.int64],
    ordinal: npt.NDArray[np.int64],
) -> pa.Table:
    """Documents that are deleted, at these positions."""
    count, names = keys.num_rows, keys.column_names
    columns = [
        keys[name].combine_chunks() if name in names else pa.nulls(count, pa.large_string())
        for name in document_schema(target).names[len(HEAD) :]
    ]
    ids = keys["id"].combine_chunks()
    return documents(target, ids, commit_lsn, ordinal, np.ones(count, bool), columns)


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


def is_before(rows: pa.Table, position: Position) -> Mask:
    """Which documents are older than a position."""
    lsn, ordinal = rows["commit_lsn"].to_numpy(), rows["ordinal"].to_numpy()
    found: Mask = (lsn < position.commit_lsn) | (
        (lsn == position.commit_lsn) & (ordinal < position.ordinal)
    )
    return found


def mask(values: Any) -> Mask:
    found: Mask = np.asarray(
        values.to_numpy(zero_copy_only=False) if isinstance(values, pa.Array) else values.to_numpy()
    )
    return found
