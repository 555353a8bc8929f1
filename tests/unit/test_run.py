"""Through the log and back: batches, pointers and runs of any size give the history, once."""

from __future__ import annotations

from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.changelog import chain, segment_run
from penstock.changelog.chain import Pointer
from penstock.changelog.changelog import ChangeLog
from penstock.changelog.segment import Segment
from penstock.changelog.segment_run import join, read_runs, take
from penstock.changelog.writer import LogWriter
from penstock.model.errors import LogError
from penstock.model.lsn import Frontier
from penstock.source.postgres.capture.assemble import Assembler
from tests.stream_model import (
    START,
    Change,
    History,
    build,
    describe,
    histories,
    memory_log,
    read_back,
)

pieces = st.lists(st.integers(1, 9), min_size=1, max_size=5)


def capture(log: ChangeLog, messages: list[memoryview], sizes: list[int]) -> None:
    """One session: a segment after each group of messages, as small as the test likes."""
    writer = LogWriter(log)
    writer.start_at(START)
    assembler = Assembler(START, describe)
    plan = cycle(sizes)
    at = 0
    while at < len(messages):
        size = next(plan)
        assembler.add(messages[at : at + size])
        at += size
        cut = assembler.cut()
        # Capture publishes no segment for a cut without rows; a larger one may carry its frontier.
        if cut.has_rows or size % 2:
            writer.publish(cut.segment, cut.frontier, is_open=cut.is_open)


def drain(log: ChangeLog, start: Frontier, max_bytes: int, run_bytes: int) -> list[list[Change]]:
    """All batches from ``start`` on, each as its changes."""
    batches: list[list[Change]] = []
    while True:
        listing = log.list()
        batch = chain.next_batch(listing.segments, listing.sizes, start, max_bytes)
        if batch is None:
            return batches
        assert batch.frontier > start
        start = batch.frontier
        runs = list(read_runs(log, batch.pointers, run_bytes))
        assert all(run.rows.num_rows for run in runs)
        batches.append([change for run in runs for change in read_back(run)])


@settings(max_examples=120)
@given(
    histories(),
    pieces,
    st.integers(0, 10),
    st.sampled_from([1, 3000, 10_000_000]),
    st.sampled_from([1, 6000, 10_000_000]),
    st.integers(0, 6),
)
def test_a_reader_gets_each_whole_transaction_once(
    history: History,
    sizes: list[int],
    withheld: int,
    max_bytes: int,
    run_bytes: int,
    skipped: int,
) -> None:
    messages = history.messages()
    messages = messages[: max(0, len(messages) - withheld)]
    log = memory_log()
    capture(log, messages, sizes)
    end = log.list().frontier or START
    starts = [START, *(transaction.frontier for transaction in history.transactions)]
    start = min(starts[min(skipped, len(starts) - 1)], end)

    batches = drain(log, start, max_bytes, run_bytes)

    expected = history.committed_up_to(end.commit_lsn)
    held = len(history.committed_up_to(start.commit_lsn))
    assert [change for batch in batches for change in batch] == expected[held:]
    # No transaction is spread over two batches.
    commits = [{change.position.commit_lsn for change in batch} for batch in batches]
    assert sum(map(len, commits)) == len(set().union(*commits))


@settings(max_examples=60)
@given(histories(4), pieces)
def test_joined_segments_say_the_same_as_each_alone(history: History, sizes: list[int]) -> None:
    assembler = Assembler(START, describe)
    messages = history.messages()
    segments: list[Segment] = []
    plan = cycle(sizes)
    at = 0
    while at < len(messages):
        size = next(plan)
        assembler.add(messages[at : at + size])
        at += size
        cut = assembler.cut()
        if cut.has_rows:
            segments.append(cut.segment)
    if segments:
        joined = join(segments)
        assert list(read_back(joined)) == history.changes
        assert len(set(joined.origins)) == len(joined.origins)


def test_segments_of_different_sessions_are_joined() -> None:
    """Each session numbers definitions and origins as it meets them."""
    truncate = ("truncate", [0, 2], True, False)
    first = build([("transaction", "elsewhere", [("insert", 2, (b"1", b"x", None)), truncate])])
    second = build([("transaction", name, [truncate]) for name in ("other", None, "elsewhere")])
    segments = []
    for history in (first, second):
        assembler = Assembler(START, describe)
        assembler.add(history.messages())
        segments.append(assembler.cut().segment)
    joined = join(segments)
    assert list(read_back(joined)) == [*first.changes, *second.changes]
    assert joined.origins == ("elsewhere", "other")


def test_a_pointer_takes_only_its_transactions() -> None:
    history = _three_inserts()
    assembler = Assembler(START, describe)
    assembler.add(history.messages())
    segment = assembler.cut().segment
    first, second, third = (change.position.commit_lsn for change in history.changes)

    def taken(after: int, upto: int) -> list[int]:
        return take(segment, Pointer("s", 0, after, upto)).rows.column("commit_lsn").to_pylist()  # type: ignore[no-any-return]

    assert taken(0, third) == [first, second, third]
    assert taken(first, second) == [second]
    assert taken(third, third) == []
    assert taken(0, first - 1) == []


def test_a_segment_that_is_gone_is_named() -> None:
    log = memory_log()
    capture(log, _three_inserts().messages(), [100])
    listing = log.list()
    (pointer,) = chain.between(listing.segments, listing.sizes, START.commit_lsn, 1 << 60)
    log.segments.delete(pointer.segment)
    with pytest.raises(LogError, match=pointer.segment):
        list(read_runs(log, [pointer]))


def test_a_run_ends_before_its_bytes_can_no_longer_be_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = memory_log()
    capture(log, _three_inserts().messages(), [3])
    listing = log.list()
    pointers = chain.between(listing.segments, listing.sizes, START.commit_lsn, 1 << 60)
    assert len(pointers) == 3
    assert [run.rows.num_rows for run in read_runs(log, pointers)] == [3]
    monkeypatch.setattr(segment_run, "_MOST_BYTES", pointers[0].size + pointers[1].size)
    assert [run.rows.num_rows for run in read_runs(log, pointers)] == [2, 1]


def _three_inserts() -> History:
    return build([("transaction", None, [("insert", 0, (b"1", b"x", None))])] * 3)
