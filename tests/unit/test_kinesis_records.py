"""Partition keys, and events that share a record."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from penstock.destination.families.queue.options import LaneBy
from penstock.destination.kinesis import records as records_module
from penstock.destination.kinesis.records import LONGEST_KEY, partition_keys, records
from penstock.testing.change_builder import ChangeBuilder, Column, table
from tests.unit.test_queue_events import ITEMS, LOOSE, encoder, some_changes

BY_TEXT = table("names", Column("name", "text", key=True))


def test_by_key_a_partition_key_is_the_table_and_the_key() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        builder.insert(ITEMS, "1", "a")
        builder.insert(LOOSE, "no key")
        builder.message("audit", b"hello")
    events = encoder(keys_are_lanes=True).events(builder.cut())
    assert partition_keys(events).to_pylist() == ['public.items:{"id":1}', "public.loose", "."]


@pytest.mark.parametrize("by", ["schema", "table", "key", "transaction"])
def test_groups_and_partition_keys_are_the_same(by: LaneBy) -> None:
    events = encoder(by, keys_are_lanes=True).events(some_changes(ChangeBuilder()))
    pairs = set(
        zip(partition_keys(events).to_pylist(), events.column("lane_hash").to_pylist(), strict=True)
    )
    assert len(pairs) == len({key for key, _ in pairs}) == len({group for _, group in pairs}) > 1
    assert all(key for key, _ in pairs)


def test_keys_that_are_too_long_are_hashed() -> None:
    builder = ChangeBuilder()
    # 'public.names:{"name":""}' has 24 characters.
    names = ["x" * (LONGEST_KEY - 24), "x" * (LONGEST_KEY - 23), "ü" * 117, "y" * 2000, "y" * 2001]
    with builder.transaction():
        for name in names:
            builder.insert(BY_TEXT, name)
    keys = partition_keys(encoder(keys_are_lanes=True).events(builder.cut())).to_pylist()
    assert len(keys[0]) == LONGEST_KEY
    assert keys[0].startswith('public.names:{"name":"xxx')
    assert all(key.startswith("#") for key in keys[1:])
    assert len(set(keys)) == len(names)


@pytest.mark.parametrize("by", ["schema", "table", "key", "transaction"])
@pytest.mark.parametrize("share", [300, 2000, 10**6])
def test_events_that_share_a_record_keep_their_order(
    by: LaneBy, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records_module, "_AGGREGATE_BYTES", share)
    events = encoder(by, keys_are_lanes=True).events(some_changes(ChangeBuilder()))
    single, packed = (records(events, aggregate=aggregate) for aggregate in (False, True))
    assert len(packed) < len(single) == len(events)
    found: list[dict[str, list[str]]] = []
    for made in (single, packed):
        lines: dict[str, list[str]] = defaultdict(list)
        for key, data in zip(made.key.to_pylist(), made.data.to_pylist(), strict=True):
            lines[key] += data.split("\n")
        found.append(lines)
    assert found[0] == found[1]
    # One share and an event that fits into one.
    assert int(packed.sizes.max()) <= 2 * share + LONGEST_KEY


def test_a_large_event_has_a_record_of_its_own() -> None:
    builder = ChangeBuilder()
    with builder.transaction():
        for size in (10, 300_000, 10, 10, 300_000, 300_000, 10):
            builder.insert(LOOSE, "x" * size)
    made = records(encoder(keys_are_lanes=True).events(builder.cut()), aggregate=True)
    assert [data.count("\n") + 1 for data in made.data.to_pylist()] == [1, 1, 2, 1, 1, 1]


def test_no_events() -> None:
    nothing = encoder(keys_are_lanes=True).events(ChangeBuilder().cut())
    assert len(records(nothing, aggregate=True)) == 0
    assert isinstance(records(nothing, aggregate=False).key, pa.Array | pa.ChunkedArray)
    assert np.array_equal(records(nothing, aggregate=False).sizes, [])
