"""Which segments count and where batches end, from names alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from penstock.changelog.chain import (
    Pointer,
    between,
    chain,
    has_gap,
    next_batch,
    waiting_bytes,
    without_stale_tail,
)
from penstock.changelog.segment_name import SegmentName
from penstock.model.errors import LogError
from penstock.model.lsn import NOTHING, Frontier


def closed(sequence: int, after: int, last: int, *, epoch: int = 1, rows: int = 1) -> SegmentName:
    return SegmentName(sequence, epoch, after, last, last + 1, rows, False, 0)


def open_(sequence: int, after: int, last: int, *, epoch: int = 1, rows: int = 1) -> SegmentName:
    return SegmentName(sequence, epoch, after, last, last + 1, rows, True, 0)


def ranges(pointers: Sequence[Pointer]) -> list[tuple[int, int, int]]:
    return [(int(p.segment[:12]), p.after, p.upto) for p in pointers]


def pointers_of(
    segments: Sequence[SegmentName], after: int, upto: int
) -> list[tuple[int, int, int]]:
    return ranges(between(segments, {}, after, upto))


class TestChain:
    def test_the_later_writer_wins(self) -> None:
        stale, fresh = closed(2, 10, 20, epoch=1), closed(2, 10, 15, epoch=2)
        assert chain([fresh, stale, closed(1, 0, 10)]) == [closed(1, 0, 10), fresh]

    def test_what_a_stale_writer_adds_later_does_not_count(self) -> None:
        first, fresh = closed(1, 0, 10), closed(2, 10, 15, epoch=2)
        late = [closed(3, 15, 20, epoch=1), closed(2, 10, 20, epoch=1)]
        assert chain([first, fresh, *late]) == [first, fresh]

    def test_nor_does_it_when_what_replaced_it_is_removed(self) -> None:
        """It reaches beyond the place where the later writer began, which has not seen it."""
        late, fresh = closed(2, 10, 20, epoch=1), closed(3, 10, 15, epoch=2)
        assert chain([late, fresh]) == [fresh]
        assert chain([closed(1, 0, 10), late, fresh]) == [closed(1, 0, 10), fresh]
        known = closed(2, 0, 10, epoch=1)
        assert chain([known, fresh]) == [known, fresh]

    def test_order_does_not_depend_on_the_listing(self) -> None:
        names = [closed(n, n, n + 1, epoch=1 + n // 4) for n in range(1, 9)]
        assert chain(reversed(names)) == names

    def test_a_gap_is_seen(self) -> None:
        assert has_gap([closed(1, 0, 1), closed(3, 2, 3)])
        assert not has_gap([closed(4, 0, 1), closed(5, 1, 3)])
        assert not has_gap([])


class TestBetween:
    def test_a_transaction_over_several_segments(self) -> None:
        segments = [closed(1, 0, 10), open_(2, 10, 20), open_(3, 20, 20), closed(4, 20, 40)]
        assert pointers_of(segments, 10, 20) == [(2, 10, 20)]
        assert pointers_of(segments, 20, 40) == [(2, 20, 40), (3, 20, 40), (4, 20, 40)]
        assert pointers_of(segments, 0, 40)[0] == (1, 0, 10)

    def test_the_open_segments_of_a_transaction_that_is_held_are_not_read_again(self) -> None:
        """They may be removed at any time."""
        segments = [open_(1, 0, 10), open_(2, 10, 10), closed(3, 10, 20), closed(4, 20, 30)]
        assert pointers_of(segments, 20, 30) == [(4, 20, 30)]
        assert pointers_of(segments, 10, 30)[0] == (1, 10, 20)

    def test_what_a_dead_writer_left_open_is_never_read(self) -> None:
        """The next writer received the whole transaction again."""
        segments = [open_(1, 0, 10), closed(2, 10, 30, epoch=2)]
        assert pointers_of(segments, 0, 30) == [(1, 0, 10), (2, 0, 30)]
        segments = [open_(1, 0, 10), open_(2, 10, 10), closed(3, 10, 30, epoch=2)]
        assert pointers_of(segments, 0, 30) == [(1, 0, 10), (3, 0, 30)]

    def test_an_open_tail_is_not_read_yet(self) -> None:
        segments = [closed(1, 0, 10), open_(2, 10, 10)]
        assert pointers_of(segments, 0, 10) == [(1, 0, 10)]

    def test_segments_without_rows_are_not_read(self) -> None:
        assert pointers_of([closed(1, 0, 10, rows=0), closed(2, 10, 20)], 0, 20) == [(2, 0, 20)]

    @pytest.mark.parametrize(
        "segments",
        [[closed(3, 5, 10)], [closed(3, 0, 2), closed(4, 5, 10)]],
        ids=["removed before", "missing between"],
    )
    def test_missing_transactions_are_an_error(self, segments: list[SegmentName]) -> None:
        with pytest.raises(
            LogError, match=r"lacks what was committed between 0/2 and 0/5"
        ) as found:
            between(segments, {}, 2, 10)
        assert "penstock destroy" in found.value.remedy

    def test_who_holds_what_is_missing_reads_on(self) -> None:
        assert pointers_of([closed(3, 0, 2), closed(4, 5, 10)], 5, 10) == [(4, 5, 10)]


class TestNextBatch:
    def test_nothing_new(self) -> None:
        assert next_batch([], {}, NOTHING, 1) is None
        assert next_batch([closed(1, 0, 10)], {}, Frontier(10, 11), 1) is None
        assert next_batch([closed(1, 0, 10), open_(2, 10, 10)], {}, Frontier(10, 11), 1) is None

    def test_it_ends_where_the_bytes_are_reached(self) -> None:
        segments = [closed(n, 10 * (n - 1), 10 * n) for n in (1, 2, 3, 4)]
        sizes = dict.fromkeys(segments, 100)
        for max_bytes, last in ((1, 10), (100, 10), (101, 20), (1000, 40)):
            batch = next_batch(segments, sizes, NOTHING, max_bytes)
            assert batch is not None
            assert batch.frontier == Frontier(last, last + 1)
            assert len(batch.pointers) == last // 10

    def test_of_compressed_segments_counts_what_they_take_in_memory(self) -> None:
        segments = [each._replace(unpacked=100) for each in (closed(1, 0, 10), closed(2, 10, 20))]
        sizes = dict.fromkeys(segments, 1)
        batch = next_batch(segments, sizes, NOTHING, 100)
        assert batch is not None
        assert [pointer.size for pointer in batch.pointers] == [100]
        assert waiting_bytes(segments, sizes, NOTHING) == 200

    def test_a_transaction_larger_than_the_limit_is_taken_whole(self) -> None:
        segments = [open_(1, 0, 0), open_(2, 0, 0), closed(3, 0, 10), closed(4, 10, 20)]
        batch = next_batch(segments, dict.fromkeys(segments, 100), Frontier(0, 1), 1)
        assert batch is not None
        assert batch.frontier == Frontier(10, 11)
        assert ranges(batch.pointers) == [(1, 0, 10), (2, 0, 10), (3, 0, 10)]

    def test_an_idle_advance_is_a_batch_without_rows(self) -> None:
        idle = SegmentName(2, 1, 10, 10, 99, 0, False, 0)
        batch = next_batch([closed(1, 0, 10), idle], {}, Frontier(10, 11), 1)
        assert batch is not None
        assert (batch.frontier, batch.pointers) == (Frontier(10, 99), ())


def test_what_a_fenced_writer_left_behind_a_gap_does_not_count() -> None:
    before = [closed(1, 0, 10), closed(2, 10, 20)]
    left_behind = closed(4, 20, 30)
    assert without_stale_tail([*before, left_behind], newest_epoch=2) == before
    # Its successor died while it swept what ended no transaction.
    unswept = [open_(4, 20, 20), open_(5, 20, 20), closed(6, 20, 30)]
    assert without_stale_tail([*before, *unswept], newest_epoch=2) == before
    # Two that end transactions were there in time: a segment is missing, and they count.
    lost = [*before, closed(4, 30, 40), closed(5, 40, 50)]
    assert without_stale_tail(lost, newest_epoch=2) == lost
    # Of the last writer it cannot be: then a segment is missing.
    assert without_stale_tail([*before, left_behind], newest_epoch=1) == [
        *before,
        left_behind,
    ]
