"""What a task reads of its share, however much of it at a time."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.changelog import chain
from penstock.changelog.writer import LogWriter
from penstock.decode.changes import ChangeSet
from penstock.model.lsn import Position
from penstock.source.postgres.capture.assemble import Assembler
from penstock.spark.task_input import TaskInput
from tests.stream_model import START, History, describe, histories, memory_log


def places(changes: ChangeSet) -> list[tuple[str, Position]]:
    """What stands where, as far as a look at each change tells."""
    rows = [
        (table.table.qualified_name, Position(int(lsn), int(ordinal)))
        for table in changes.tables
        for lsn, ordinal in zip(table.commit_lsn, table.ordinal, strict=True)
    ]
    rows += [(t.qualified_name, e.stamp.position) for e in changes.truncates for t in e.tables]
    return rows + [(event.prefix, event.stamp.position) for event in changes.messages]


@settings(max_examples=60)
@given(histories(), st.integers(1, 7))
def test_few_changes_at_a_time_are_the_same_changes(history: History, most: int) -> None:
    log = memory_log()
    writer = LogWriter(log)
    writer.start_at(START)
    assembler = Assembler(START, describe)
    assembler.add(history.messages())
    cut = assembler.cut()
    if not cut.has_rows:
        return
    writer.publish(cut.segment, cut.frontier, is_open=cut.is_open)
    listing = log.list()
    batch = chain.next_batch(listing.segments, listing.sizes, START, 10**9)
    assert batch is not None
    whole = [places(some) for some in TaskInput(batch.pointers, 10**9).changes(log)]
    pieces = [places(some) for some in TaskInput(batch.pointers, 10**9, most).changes(log)]
    assert Counter(p for some in pieces for p in some) == Counter(p for some in whole for p in some)
    # A later piece never holds what stands before an earlier one.
    bounds = [sorted(position for _, position in some) for some in pieces if some]
    in_order = [position for some in bounds for position in some]
    assert [position for position, _ in groupby(in_order)] == sorted(set(in_order))
    assert all(len({position for _, position in some}) <= most for some in pieces)
