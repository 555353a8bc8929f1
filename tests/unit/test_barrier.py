"""Ending a pipeline's batches at one position: the file, and how batches are cut by it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.changelog.barrier import HOLD_SECONDS, Barrier, BarrierWatch
from penstock.changelog.chain import Batch, next_batch
from penstock.changelog.changelog import BARRIERS, ChangeLog
from penstock.changelog.segment_name import SegmentName
from penstock.model.lsn import Frontier

BEGIN = Frontier(0x100, 0x108)


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    return ChangeLog(str(tmp_path / "log"))


def held_at(log: ChangeLog) -> int | None:
    return BarrierWatch(log).held_at(log.list())


class TestFile:
    def test_it_holds_while_the_block_lasts(self, log: ChangeLog) -> None:
        assert held_at(log) is None
        with Barrier(log, 0x500) as barrier:
            assert held_at(log) == 0x500
            barrier.move(0x600)
            assert held_at(log) == 0x600
        assert held_at(log) is None
        assert log.list().barriers == ()

    def test_it_goes_when_the_block_fails(self, log: ChangeLog) -> None:
        with pytest.raises(RuntimeError), Barrier(log, 0x500):
            raise RuntimeError
        assert held_at(log) is None

    def test_one_that_nobody_renews_lets_go_by_the_clock_of_who_sees_it(
        self, log: ChangeLog
    ) -> None:
        watch = BarrierWatch(log)
        with Barrier(log, 0x500):
            listing = log.list()
            assert watch.held_at(listing, 1000) == 0x500
            assert watch.held_at(listing, 1000 + HOLD_SECONDS - 1) == 0x500
            assert watch.held_at(listing, 1000 + HOLD_SECONDS + 1) is None
            assert log.list().barriers == (), "whoever comes next is not held by it"

    def test_two_hold_at_the_lower_one(self, log: ChangeLog) -> None:
        with Barrier(log, 0x600), Barrier(log, 0x500):
            assert held_at(log) == 0x500

    def test_it_is_renewed(self, log: ChangeLog, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("penstock.changelog.barrier.HOLD_SECONDS", 0.03)
        with Barrier(log, 0x500):
            (first,) = log.list().barriers
            deadline = time.monotonic() + 30
            while first in log.list().barriers:
                assert time.monotonic() < deadline

    @pytest.mark.parametrize("name", ["x", "500", "0000000000000500.x.1", "0x500.12345678.1"])
    def test_one_that_makes_no_sense_holds_nobody(self, log: ChangeLog, name: str) -> None:
        log.segments.child(BARRIERS).write(name, b"", durable=False)
        assert held_at(log) is None


def closed(sequence: int, after: int, last: int, end: int | None = None) -> SegmentName:
    return SegmentName(sequence, 1, after, last, end or last + 8, 1, False, 0)


def open_(sequence: int, after: int, last: int) -> SegmentName:
    return SegmentName(sequence, 1, after, last, last + 8, 1, True, 0)


class TestLimit:
    def test_it_ends_inside_a_segment(self) -> None:
        segments = [closed(1, 0x100, 0x200), closed(2, 0x200, 0x400)]
        batch = next_batch(segments, {}, BEGIN, 10**6, 0x300)
        assert batch is not None
        assert batch.frontier == Frontier(0x2FF, 0x300)
        assert [(p.after, p.upto) for p in batch.pointers] == [(0x100, 0x200), (0x100, 0x2FF)]
        assert next_batch(segments, {}, batch.frontier, 10**6, 0x300) is None
        rest = next_batch(segments, {}, batch.frontier, 10**6)
        assert rest is not None
        assert rest.frontier == segments[1].frontier
        assert [(p.after, p.upto) for p in rest.pointers] == [(0x2FF, 0x400)]

    def test_a_log_that_is_not_there_yet_gives_what_it_has(self) -> None:
        batch = next_batch([closed(1, 0x100, 0x200)], {}, BEGIN, 10**6, 0x300)
        assert batch is not None
        assert batch.frontier == Frontier(0x200, 0x208)

    def test_an_idle_advance_does_not_pass_it(self) -> None:
        segments = [closed(1, 0x100, 0x200), closed(2, 0x200, 0x200, end=0x500)]
        batch = next_batch(segments, {}, BEGIN, 10**6, 0x300)
        assert batch is not None
        assert batch.frontier == Frontier(0x200, 0x300)
        rest = next_batch(segments, {}, batch.frontier, 10**6)
        assert rest is not None
        assert rest.frontier == Frontier(0x200, 0x500)

    def test_who_is_beyond_it_already_waits(self) -> None:
        segments = [closed(1, 0x100, 0x200), closed(2, 0x200, 0x400)]
        assert next_batch(segments, {}, Frontier(0x300, 0x308), 10**6, 0x300) is None
        # Also by an idle advance alone: its end must not go back.
        assert next_batch(segments, {}, Frontier(0x200, 0x308), 10**6, 0x300) is None

    def test_a_transaction_that_began_before_and_ends_after(self) -> None:
        """Its rows stand in segments before the limit, too, and belong to the other side."""
        segments = [open_(1, 0x100, 0x200), open_(2, 0x200, 0x200), closed(3, 0x200, 0x400)]
        batch = next_batch(segments, {}, BEGIN, 10**6, 0x300)
        assert batch is not None
        assert batch.frontier == Frontier(0x2FF, 0x300)
        assert {pointer.upto for pointer in batch.pointers} == {0x2FF}
        rest = next_batch(segments, {}, batch.frontier, 10**6)
        assert rest is not None
        assert [int(p.segment[:12]) for p in rest.pointers] == [1, 2, 3]
        assert {pointer.after for pointer in rest.pointers} == {0x2FF}


@dataclass(frozen=True)
class History:
    """A log as one writer cut it: its segments, and the commit LSN of every row in each."""

    segments: list[SegmentName]
    rows: dict[str, list[int]]

    @property
    def all_rows(self) -> list[int]:
        return [commit for rows in self.rows.values() for commit in rows]

    def taken(self, batch: Batch) -> list[int]:
        """The rows of a batch, as changelog.run takes them."""
        return [
            commit
            for pointer in batch.pointers
            for commit in self.rows[pointer.segment]
            if pointer.after < commit <= pointer.upto
        ]


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Transactions of some rows each, cut into segments anywhere, with idle advances between."""
    lsn = BEGIN.commit_lsn
    stream: list[tuple[int, bool]] = []  # (commit LSN, whether it is the transaction's last row)
    for size in draw(st.lists(st.integers(1, 6), min_size=1, max_size=12)):
        lsn += 8 * draw(st.integers(2, 5))
        stream += [(lsn, row == size - 1) for row in range(size)]
    segments: list[SegmentName] = []
    rows: dict[str, list[int]] = {}
    frontier = BEGIN
    is_open = False
    idle_end = draw(st.booleans())
    while stream or idle_end:
        idle_end = idle_end and bool(stream)
        # The simplest draw takes most: a draw that takes nothing would not end.
        count = min(5 - draw(st.integers(0, 5)), len(stream))
        part, stream = stream[:count], stream[count:]
        ended = [commit for commit, is_last in part if is_last]
        is_open = not part[-1][1] if part else is_open
        after = frontier
        if ended:
            frontier = Frontier(ended[-1], ended[-1] + 8)
        elif not part and not is_open:
            # Idle: what comes next was committed later.
            room = stream[0][0] if stream else frontier.end_lsn + 64
            frontier = Frontier(frontier.commit_lsn, draw(st.integers(frontier.end_lsn, room)))
        name = SegmentName(len(segments) + 1, 1, after.commit_lsn, *frontier, len(part), is_open, 0)
        segments.append(name)
        rows[str(name)] = [commit for commit, _ in part]
    return History(segments, rows)


def deliver(
    history: History, start: Frontier, max_bytes: int, limit: int | None
) -> Iterator[tuple[Frontier, list[int]]]:
    """Batch after batch until there is nothing more."""
    sizes = dict.fromkeys(history.segments, 10)
    while (batch := next_batch(history.segments, sizes, start, max_bytes, limit)) is not None:
        assert batch.frontier > start
        assert batch.frontier.end_lsn >= start.end_lsn
        start = batch.frontier
        yield start, history.taken(batch)


@given(histories(), st.integers(0, 80), st.integers(1, 60))
def test_the_limit_parts_the_transactions(history: History, place: int, max_bytes: int) -> None:
    limit = BEGIN.end_lsn + 8 * place
    held = BEGIN
    before: list[int] = []
    for frontier, rows in deliver(history, BEGIN, max_bytes, limit):
        assert frontier.end_lsn <= limit
        assert all(history.all_rows.count(commit) == rows.count(commit) for commit in rows)
        held, before = frontier, before + rows
    assert before == [commit for commit in history.all_rows if commit < limit]
    if history.segments[-1].end_lsn >= limit > BEGIN.end_lsn:
        assert held.end_lsn == limit
    after: list[int] = []
    for frontier, rows in deliver(history, held, max_bytes, None):
        assert all(history.all_rows.count(commit) == rows.count(commit) for commit in rows)
        held, after = frontier, after + rows
    assert before + after == history.all_rows
    assert held == history.segments[-1].frontier
