"""What events become in a stream: partition keys and data."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.row_values import Ints
from penstock.destination.encode.json_values import TEXT, join
from penstock.destination.encode.ndjson import hex_texts
from penstock.destination.families.queue.lanes import Hashes

LARGEST = 2**20
"""Bytes of one record, with its partition key."""
LONGEST_KEY = 256
# Far more than a shard takes in the time of a call, and far from all that it takes in a second.
_AGGREGATE_BYTES = 256 * 2**10


@dataclass(frozen=True)
class Records:
    """In the order of their events. Those of one group have to keep it."""

    key: pa.Array
    data: pa.Array
    group: Hashes

    def __len__(self) -> int:
        return len(self.group)

    def unordered(self) -> Records:
        """The same, each free to go before the others."""
        return replace(self, group=np.arange(len(self), dtype=np.uint64))

    @property
    def sizes(self) -> Ints:
        return np.asarray(pc.add(pc.binary_length(self.key), pc.binary_length(self.data)), np.int64)


def records(events: pa.RecordBatch, *, aggregate: bool) -> Records:
    """One record an event; with ``aggregate``, of events of one group that follow each other in
    it as many as are of good size, a line each.
    """
    key, data = partition_keys(events), events.column("value")
    group = np.asarray(events.column("lane_hash"))
    if not aggregate or not len(events):
        return Records(key, data, group)
    # Stable: those of a group stay in order.
    order = np.argsort(group, kind="stable")
    data, group = data.take(pa.array(order)), group[order]
    starts = _starts(group, np.asarray(pc.binary_length(data), np.int64) + 1)
    bounds = pa.array(np.append(starts, len(order)), pa.int64())
    lines = pc.binary_join(pa.LargeListArray.from_arrays(bounds, data), pa.scalar("\n", TEXT))
    # Where each record began among the events, so that calls go on in their order.
    first = order[starts]
    again = np.argsort(first, kind="stable")
    return Records(
        key.take(pa.array(first[again])), lines.take(pa.array(again)), group[starts][again]
    )


def partition_keys(events: pa.RecordBatch) -> pa.Array:
    """What names the group of each event: by key, table and key, else the lane's name. Where that
    is longer than Kinesis takes, or nothing, a hash of it.
    """
    key, by_key = events.column("key"), events.column("by_key")
    table = join(events.column("schema").cast(TEXT), ".", events.column("table").cast(TEXT))
    names = pc.if_else(by_key, join(table, ":", key), pc.coalesce(key, table))
    # Bytes are never fewer than characters, however these are counted.
    length = pc.binary_length(names)
    is_legal = pc.and_(pc.greater(length, 0), pc.less_equal(length, LONGEST_KEY))
    if pc.all(is_legal).as_py() in (True, None):
        return names
    hashes = np.asarray(events.column("lane_hash"))
    low = (hashes & np.uint64(0xFFFFFFFF)).astype(np.int64)
    high = (hashes >> np.uint64(32)).astype(np.int64)
    return pc.if_else(is_legal, names, join("#", hex_texts(high), "-", hex_texts(low)))


def _starts(group: Hashes, sizes: Ints) -> Ints:
    """Where records begin: with each group, and wherever as much has come as one is to have."""
    is_first = np.append(True, group[1:] != group[:-1])
    firsts = np.flatnonzero(is_first)
    before = np.cumsum(sizes) - sizes
    within = before - np.repeat(before[firsts], np.diff(np.append(firsts, len(group))))
    # By the share in which an event begins. A large one stands alone, so that a record is never
    # more than two shares.
    share = within // _AGGREGATE_BYTES
    is_large = sizes > _AGGREGATE_BYTES
    is_cut = (share[1:] != share[:-1]) | is_large[1:] | is_large[:-1]
    return np.flatnonzero(is_first | np.append(True, is_cut))
