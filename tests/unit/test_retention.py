"""When a segment may go."""

from __future__ import annotations

from penstock.changelog.retention import Retention, passed_by_all, without_passed_head
from penstock.changelog.segment_name import SegmentName
from penstock.model.lsn import Frontier


def segment(
    sequence: int, after: int, last: int, *, is_open: bool = False, epoch: int = 1
) -> SegmentName:
    return SegmentName(sequence, epoch, after, last, last + 1, 1, is_open, 0)


def at(lsn: int) -> Frontier:
    return Frontier(lsn, lsn + 1)


FOUR = [segment(n, 10 * (n - 1), 10 * n) for n in (1, 2, 3, 4)]


def test_without_readers_all_stay() -> None:
    assert passed_by_all(FOUR, []) == []


def test_the_slowest_reader_decides() -> None:
    assert passed_by_all(FOUR, [at(40), at(20)]) == FOUR[:2]
    assert passed_by_all(FOUR, [at(29)]) == FOUR[:2]
    assert passed_by_all(FOUR, [at(9), at(40)]) == []


def test_the_last_segment_stays() -> None:
    assert passed_by_all(FOUR, [at(99)]) == FOUR[:3]
    assert passed_by_all(FOUR[:1], [at(99)]) == []
    assert passed_by_all([], [at(99)]) == []


def test_an_open_segment_stays_until_its_transaction_is_held() -> None:
    segments = [
        segment(1, 0, 10, is_open=True),
        segment(2, 10, 10, is_open=True),
        segment(3, 10, 30),
        segment(4, 30, 40),
    ]
    assert passed_by_all(segments, [at(10)]) == []
    assert passed_by_all(segments, [at(30)]) == segments[:3]


def test_what_a_new_writer_drops_is_not_the_log_s_end() -> None:
    """A new writer removes the unfinished tail; one segment must be left to say where to go on."""
    tail = [segment(5, 40, 40, is_open=True), segment(6, 40, 40, is_open=True)]
    assert passed_by_all([*FOUR, *tail], [at(40)]) == FOUR[:3]
    assert passed_by_all(tail, [at(40)]) == []


def test_a_segment_goes_after_its_grace_period() -> None:
    retention = Retention(grace_seconds=60)
    assert retention.expired(FOUR, [at(10)], now=1000) == []
    assert retention.expired(FOUR, [at(20)], now=1059.9) == []
    assert retention.expired(FOUR, [at(20)], now=1060) == FOUR[:1]
    assert retention.expired(FOUR[1:], [at(20)], now=1119.9) == FOUR[1:2]


def test_a_reader_that_comes_back_starts_the_grace_period_again() -> None:
    retention = Retention(grace_seconds=60)
    assert retention.expired(FOUR, [at(20)], now=0) == []
    assert retention.expired(FOUR, [at(20), at(0)], now=59) == []
    assert retention.expired(FOUR, [at(20)], now=100) == []
    assert retention.expired(FOUR, [at(20)], now=160) == FOUR[:2]


def test_no_grace_means_at_once() -> None:
    assert Retention(0).expired(FOUR, [at(10)], now=5) == FOUR[:1]


class TestAnInterruptedRemoval:
    """Stores delete many at a time in any order; the last one of them is deleted by itself."""

    SEGMENTS = tuple(segment(n, 10 * (n - 1), 10 * n) for n in range(1, 8))

    def left(self, *gone: int) -> list[SegmentName]:
        return [segment for segment in self.SEGMENTS if segment.sequence not in gone]

    def test_what_is_left_of_it_does_not_count(self) -> None:
        held = [at(40), at(55)]
        assert passed_by_all(self.SEGMENTS, held) == list(self.SEGMENTS[:4])
        assert without_passed_head(self.left(2), held) == list(self.SEGMENTS[2:])
        assert without_passed_head(self.left(1, 3), held) == list(self.SEGMENTS[3:])
        assert without_passed_head(self.left(1, 2, 3), held) == list(self.SEGMENTS[3:])

    def test_a_segment_that_somebody_needs_is_missed(self) -> None:
        for held in ([], [at(39)], [at(40), at(20)]):
            assert without_passed_head(self.left(3), held) == self.left(3)
        # Segment 4 may have begun the transaction that 5 ends, as far as names tell.
        assert without_passed_head(self.left(4), [at(40)]) == self.left(4)


class TestALateWrite:
    """It stands alone before a gap: all around it was removed before it came."""

    LATE = segment(11, 100, 110)

    def test_it_stops_nobody(self) -> None:
        last = segment(60, 590, 600, epoch=2)
        assert without_passed_head([self.LATE, last], [at(600)]) == [last]
        behind = [last, segment(61, 600, 610, epoch=2)]
        for held in (590, 600, 610):
            assert without_passed_head([self.LATE, *behind], [at(held)], late_writes=True) == behind

    def test_nor_do_several_or_what_a_fenced_writer_left_at_the_end(self) -> None:
        """The gap at the end is another affair (chain.without_stale_tail)."""
        later = segment(31, 300, 310, epoch=2)
        live = [segment(60, 590, 600, epoch=3), segment(61, 600, 610, epoch=3)]
        stale = segment(63, 610, 620, epoch=3)
        for left in ([self.LATE, *live], [self.LATE, later, *live]):
            found = without_passed_head([*left, stale], [at(595)], late_writes=True)
            assert found == [*live, stale]

    def test_a_segment_that_somebody_needs_is_missed(self) -> None:
        last = segment(60, 590, 600, epoch=2)
        for held in ([], [at(110)], [at(600), at(589)]):
            left = [self.LATE, last]
            assert without_passed_head(left, held, late_writes=True) == left
        # Of one writer it may be the one before that is missing, which began a transaction.
        same = [self.LATE, segment(60, 590, 600)]
        assert without_passed_head(same, [at(590)], late_writes=True) == same
        # So it may where writes do not come late.
        assert without_passed_head([self.LATE, last], [at(590)]) == [self.LATE, last]
