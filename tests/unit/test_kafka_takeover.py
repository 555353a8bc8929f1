"""A capture of topics takes over while a segment of the dead one is on its way.

Positions are sums of offsets, and another process reads the partitions in another order: what comes
at the same position need not be the same messages.
"""

from __future__ import annotations

import pytest

from penstock.changelog import chain
from penstock.changelog.changelog import ChangeLog
from penstock.changelog.segment import without_rows
from penstock.changelog.view import LogView
from penstock.changelog.writer import LogWriter
from penstock.source.kafka.identity import stored_offsets
from penstock.source.kafka.offsets import START, Offsets, Partition, PartitionState, frontier_of
from tests.stream_model import LateStorage, memory_log


def at(first: int, second: int) -> Offsets:
    """Where a reader of two partitions stands."""
    nexts = enumerate((first, second))
    return Offsets({Partition("t", number): PartitionState(n) for number, n in nexts}, {"t": "x"})


def publish(writer: LogWriter, offsets: Offsets) -> None:
    segment = without_rows(offsets.to_json())
    writer.publish(segment, frontier_of(offsets.total), is_open=False)


def dies(log: ChangeLog, *published: Offsets, on_its_way: Offsets) -> LateStorage:
    """Who captures until it is killed."""
    writer = LogWriter(log)
    writer.start_at(START)
    for offsets in published:
        publish(writer, offsets)
    assert isinstance(log.segments, LateStorage)
    log.segments.is_slow = True
    publish(writer, on_its_way)
    log.segments.is_slow = False
    return log.segments


def test_it_goes_on_at_the_offsets_of_the_segment_at_which_the_log_ends() -> None:
    log = memory_log(LateStorage)
    store = dies(log, at(5, 5), on_its_way=at(15, 5))
    writer = LogWriter(log)
    store.arrive(0)
    offsets = stored_offsets(log, writer.listing)
    assert offsets == at(5, 5)
    assert writer.frontier == frontier_of(offsets.total)


@pytest.mark.parametrize("published", [(), (at(5, 5),)], ids=["empty log", "log"])
def test_what_the_next_one_has_not_seen_is_not_read(published: tuple[Offsets, ...]) -> None:
    log = memory_log(LateStorage)
    store = dies(log, *published, on_its_way=at(15, 5))
    writer = LogWriter(log)
    store.arrive(0)
    view, position = LogView(log), START
    read: list[str] = []

    def deliver() -> None:
        nonlocal position
        listing = view.listing()
        batch = chain.next_batch(listing.segments, listing.sizes, position, 10**6)
        if batch is not None:
            new = [name for name in listing.segments if name.frontier > position]
            read.extend(log.read(str(name)).source for name in new)
            position = batch.frontier

    deliver()
    if writer.frontier is None:
        writer.start_at(START)
    else:
        offsets = stored_offsets(log, writer.listing)
        assert offsets is not None
        writer.start_at(writer.frontier, offsets.to_json())
    # The other partition comes first.
    later = (at(5, 15), at(15, 15))
    for offsets in later:
        publish(writer, offsets)
        deliver()
    assert read == [offsets.to_json() for offsets in (*published, *later)]
