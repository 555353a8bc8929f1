"""Batches grow while there is a backlog, and only then."""

from __future__ import annotations

import pytest

from penstock.changelog.batch_size import BatchSize
from penstock.changelog.chain import next_batch, waiting_bytes
from penstock.changelog.segment_name import SegmentName
from penstock.model.lsn import NOTHING, Frontier


def segments(count: int) -> list[SegmentName]:
    return [
        SegmentName(number, 1, 10 * (number - 1), 10 * number, 10 * number + 1, 1, False, 0)
        for number in range(1, count + 1)
    ]


@pytest.mark.parametrize(
    ("max_growth", "expected"),
    [
        (1, [25, 50, 100, 100, 100]),
        (2, [25, 50, 100, 200, 200]),
        (3, [25, 50, 100, 200, 300]),
        (8, [25, 50, 100, 200, 400]),
    ],
)
def test_they_double_up_to_the_limit(max_growth: int, expected: list[int]) -> None:
    size = BatchSize(100, max_growth)
    assert size.allowed == 100
    seen = []
    for _ in expected:
        size = size.next(waiting=26)
        seen.append(size.allowed)
    assert seen == expected


def test_they_are_small_again_at_once() -> None:
    size = BatchSize(100, 4).next(1000).next(1000).next(1000).next(1000)
    assert size.allowed == 200
    assert size.next(25).allowed == 100
    assert size.next(0).next(1000).allowed == 25


def test_a_backlog_drains_in_few_batches() -> None:
    log = segments(100)
    sizes = dict.fromkeys(log, 10)
    at, size, taken = NOTHING, BatchSize(80, 4), []
    while True:
        size = size.next(waiting_bytes(log, sizes, at))
        batch = next_batch(log, sizes, at, size.allowed)
        if batch is None:
            break
        taken.append(len(batch.pointers))
        at = batch.frontier
    assert taken == [2, 4, 8, 16, 32, 32, 6]


class TestWaiting:
    def test_what_the_reader_does_not_hold(self) -> None:
        log = segments(5)
        sizes = dict.fromkeys(log, 7)
        assert waiting_bytes(log, sizes, NOTHING) == 35
        assert waiting_bytes(log, sizes, log[2].frontier) == 14
        assert waiting_bytes(log, sizes, log[4].frontier) == 0
        assert waiting_bytes([], {}, Frontier(1, 2)) == 0

    def test_a_transaction_that_is_not_whole_yet_does_not_count(self) -> None:
        """It cannot be taken, so it is no reason to take more."""
        whole = segments(2)
        parts = [SegmentName(number, 1, 20, 20, 21, 1, True, 0) for number in (3, 4)]
        sizes = dict.fromkeys([*whole, *parts], 7)
        assert waiting_bytes([*whole, *parts], sizes, NOTHING) == 14
        end = SegmentName(5, 1, 20, 30, 31, 1, False, 0)
        assert waiting_bytes([*whole, *parts, end], {**sizes, end: 1}, NOTHING) == 29
