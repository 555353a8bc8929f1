"""How far behind the destination is, as the source's WAL and the clock go on."""

from __future__ import annotations

import pytest

from penstock.metrics.lag import Lag


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lag(clock: Clock) -> Lag:
    return Lag(clock)


def test_there_is_none_while_nothing_is_known(lag: Lag) -> None:
    assert (lag.bytes, lag.seconds) == (0, 0.0)


def test_it_is_the_age_of_the_newest_state_that_is_held(lag: Lag, clock: Clock) -> None:
    for lsn in (100, 200, 300):
        lag.source_is_at(lsn)
        clock.now += 10
    # At 1030; the source was at 200 at 1010.
    lag.delivered(250)
    assert (lag.bytes, lag.seconds) == (50, 20.0)
    lag.delivered(300)
    assert (lag.bytes, lag.seconds) == (0, 0.0)


def test_a_source_that_was_idle_is_not_long_ahead(lag: Lag, clock: Clock) -> None:
    lag.delivered(100, commit_micros=1_000_000_000)
    for _ in range(3600):
        lag.source_is_at(100)
        clock.now += 1
    lag.source_is_at(150)
    clock.now += 1
    assert (lag.bytes, lag.seconds) == (50, 2.0)


def test_what_was_committed_last_counts_where_nothing_better_is_known(
    lag: Lag, clock: Clock
) -> None:
    """After a start with a backlog of a quarter of an hour."""
    lag.source_is_at(5000)
    clock.now += 3
    assert lag.seconds == 3.0
    lag.delivered(1000, commit_micros=100_000_000)
    assert lag.seconds == 903.0
    lag.delivered(2000, commit_micros=700_000_000)
    assert lag.seconds == 303.0


def test_a_clock_that_is_ahead_at_the_source_makes_no_lag_negative(lag: Lag) -> None:
    lag.source_is_at(5000)
    lag.delivered(1000, commit_micros=2_000_000_000)
    assert lag.seconds == 0.0


def test_a_backlog_of_days_takes_little_memory_and_is_told_rightly(lag: Lag, clock: Clock) -> None:
    for lsn in range(1, 10_001):
        lag.source_is_at(lsn)
        clock.now += 1
    assert len(lag._looks) <= 2000
    assert lag.seconds == 10_000
    lag.delivered(9_999)
    assert (lag.bytes, lag.seconds <= 200) == (1, True)
