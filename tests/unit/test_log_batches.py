"""Batches in pieces: the same rows as in one, also of a transaction that is still being written."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.changelog.barrier import Barrier
from penstock.changelog.batch_size import BatchSize
from penstock.changelog.chain import between, unfinished
from penstock.changelog.changelog import ChangeLog
from penstock.changelog.log_batches import BatchPiece, LogBatches
from penstock.changelog.segment_name import SegmentName
from penstock.model.lsn import NOTHING, Frontier

pytestmark = pytest.mark.hypothesis

_SIZE = 10


class WrittenLog:
    """A log of segments that have names and sizes; nobody reads them."""

    def __init__(self, folder: Path) -> None:
        self.log = ChangeLog(str(folder))
        self.names: list[SegmentName] = []
        self._epoch = 1

    @property
    def last(self) -> int:
        return self.names[-1].last if self.names else 0

    def add(self, last: int | None = None, *, is_open: bool = False, size: int = _SIZE) -> None:
        """One that ends a transaction at ``last``, or none."""
        sequence = self.names[-1].sequence + 1 if self.names else 1
        last = self.last if last is None else last
        name = SegmentName(sequence, self._epoch, self.last, last, last + 1, 1, is_open, 0)
        self.log.segments.write(str(name), b"x" * size, durable=False)
        self.names.append(name)

    def take_over(self) -> None:
        """Another writer: what the last one left open at the end is swept."""
        self._epoch += 1
        while self.names and self.names[-1].is_unfinished:
            self.log.segments.delete(str(self.names.pop()))

    def batches(self, start: Frontier = NOTHING, most: int = 2**20) -> LogBatches:
        return LogBatches(self.log, start, BatchSize(most, 1))


@pytest.fixture
def written(tmp_path: Path) -> WrittenLog:
    return WrittenLog(tmp_path / "log")


def sequences(piece: BatchPiece | None) -> tuple[list[int], bool, bool]:
    assert piece is not None
    numbers = [int(pointer.segment.split(".")[0]) for pointer in piece.batch.pointers]
    return numbers, piece.is_first, piece.is_last


def test_a_large_batch_comes_in_pieces(written: WrittenLog) -> None:
    for last in (10, 20, 30, 40, 50):
        written.add(last)
    batches = written.batches()
    assert sequences(batches.next(2 * _SIZE)) == ([1, 2], True, False)
    assert batches.frontier == NOTHING
    assert sequences(batches.next(2 * _SIZE)) == ([3, 4], False, False)
    assert sequences(batches.next(2 * _SIZE)) == ([5], False, True)
    assert batches.frontier == Frontier(50, 51)
    assert batches.next(2 * _SIZE) is None


def test_it_is_full_when_waiting_makes_no_larger_batch(written: WrittenLog) -> None:
    batches = written.batches(most=2 * _SIZE)
    written.add(10)
    assert not batches.is_full()
    # Of a transaction that is still being written nobody knows when it can be taken.
    written.add(is_open=True)
    assert not batches.is_full()
    written.add(20)
    assert batches.is_full()
    while batches.next() is not None:
        pass
    assert not batches.is_full()


def test_one_that_nobody_wants_in_pieces_comes_whole(written: WrittenLog) -> None:
    written.add(10, is_open=True)
    written.add(is_open=True)
    batches = written.batches()
    assert sequences(batches.next()) == ([1], True, True)
    assert batches.next() is None
    written.add(20)
    assert sequences(batches.next()) == ([1, 2, 3], True, True)


def test_a_transaction_is_taken_while_it_is_written(written: WrittenLog) -> None:
    written.add(10, is_open=True)
    batches = written.batches()
    assert sequences(batches.next(2 * _SIZE)) == ([1], True, True)
    assert batches.next(2 * _SIZE) is None  # less than a piece
    written.add(is_open=True)
    piece = batches.next(2 * _SIZE)
    assert sequences(piece) == ([1, 2], True, False)
    assert piece is not None
    # Of the segment that another batch had the end of, what comes behind that.
    assert {pointer.after for pointer in piece.batch.pointers} == {10}
    assert batches.frontier == Frontier(10, 11)
    assert batches.next(2 * _SIZE) is None
    written.add(20)
    assert sequences(batches.next(2 * _SIZE)) == ([3], False, True)
    assert batches.frontier == Frontier(20, 21)


def test_one_that_another_writer_receives_again_begins_anew(written: WrittenLog) -> None:
    written.add(10)
    batches = written.batches(Frontier(10, 11))
    for _ in range(2):
        written.add(is_open=True)
    assert sequences(batches.next(2 * _SIZE)) == ([2, 3], True, False)
    written.take_over()
    assert batches.next(2 * _SIZE) is None
    written.add(is_open=True, size=3 * _SIZE)
    assert sequences(batches.next(2 * _SIZE)) == ([2], True, False)
    written.add(20)
    assert sequences(batches.next(2 * _SIZE)) == ([3], False, True)


def test_who_must_stop_takes_nothing_that_is_not_whole(written: WrittenLog) -> None:
    """verify waits for a point, and what was taken may lie behind it."""
    written.add(10)
    batches = written.batches(Frontier(10, 11))
    for _ in range(2):
        written.add(is_open=True)
    assert sequences(batches.next(2 * _SIZE)) == ([2, 3], True, False)
    with Barrier(written.log, 15):
        assert batches.next(1) is None
        written.add(20)
        # The position moves up to there, with none of its rows.
        piece = batches.next()
        assert piece is not None
        assert (piece.is_first, piece.is_last) == (True, True)
        assert {pointer.upto for pointer in piece.batch.pointers} == {14}
        assert (batches.next(1), batches.frontier) == (None, Frontier(14, 15))
    assert sequences(batches.next(2 * _SIZE)) == ([2, 3], True, False)


def test_a_transaction_with_schema_changes_is_not_taken_ahead(written: WrittenLog) -> None:
    written.add(10)
    written.add(is_open=True)
    sizes = dict.fromkeys(written.names, _SIZE)
    assert len(unfinished(written.names, sizes, Frontier(10, 11))) == 1
    changed = [*written.names[:1], replace_changes(written.names[1])]
    assert unfinished(changed, sizes, Frontier(10, 11)) == ()


def replace_changes(name: SegmentName) -> SegmentName:
    return name._replace(has_schema_changes=True)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ends"), st.booleans(), st.integers(1, 30)),
        st.tuples(st.just("goes on"), st.just(True), st.integers(1, 30)),
        st.just(("taken over", False, 0)),
        st.tuples(st.just("read"), st.booleans(), st.integers(1, 40)),
    ),
    max_size=30,
)


@given(STEPS)
def test_pieces_are_the_batch(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, bool, int]]
) -> None:
    """Whatever is written, swept and read in between: the pieces of a batch are its pointers, in
    order, each once, and batches follow each other.
    """
    written = WrittenLog(tmp_path_factory.mktemp("log"))
    batches = written.batches(most=50)
    begun: list[str] = []
    start = NOTHING

    def read(size: int | None) -> bool:
        nonlocal begun, start
        piece = batches.next(size)
        if piece is None:
            return False
        assert begun or piece.is_first
        taken = [pointer.segment for pointer in piece.batch.pointers]
        begun = taken if piece.is_first else begun + taken
        if piece.is_last:
            sizes = dict.fromkeys(written.names, 0)
            whole = between(written.names, sizes, start.commit_lsn, piece.batch.frontier.commit_lsn)
            assert begun == [pointer.segment for pointer in whole]
            assert batches.frontier == piece.batch.frontier > start
            start, begun = piece.batch.frontier, []
        return True

    for kind, flag, number in steps:
        if kind == "ends":
            written.add(written.last + 10, is_open=flag, size=number)
        elif kind == "goes on" and written.names:
            written.add(is_open=True, size=number)
        elif kind == "taken over":
            written.take_over()
        elif kind == "read":
            read(number if flag else None)
    while read(25):
        pass
    assert start.commit_lsn == written.last
