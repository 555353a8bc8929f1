"""Pauses grow, are never equal for all, and are small again after a healthy while."""

from __future__ import annotations

from penstock.backoff import Backoff


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def pauses(backoff: Backoff, clock: Clock, count: int) -> list[float]:
    """Fails at once after each pause."""
    found = []
    for _ in range(count):
        found.append(backoff.next_pause())
        clock.now += found[-1]
    return found


def test_they_double_up_to_a_limit_with_jitter() -> None:
    clock = Clock()
    found = pauses(Backoff(clock, first=0.5), clock, 12)
    for number, pause in enumerate(found):
        whole = min(0.5 * 2**number, 30.0)
        assert whole / 2 <= pause <= whole
    assert len(set(found)) == len(found)


def test_a_healthy_while_makes_them_small_again_and_a_short_one_does_not() -> None:
    clock = Clock()
    backoff = Backoff(clock, first=0.5)
    pauses(backoff, clock, 6)
    for alive in (59.0, 59.0):
        clock.now += alive
        pause = backoff.next_pause()
        assert pause >= 15.0
        # The pause itself is no healthy while.
        clock.now += pause
    clock.now += 61.0
    assert backoff.next_pause() <= 0.5


def test_waiting_ends_when_it_is_time_to_stop() -> None:
    clock = Clock()
    backoff = Backoff(clock, first=0.5)
    asked = 0

    def stopping() -> bool:
        nonlocal asked
        asked += 1
        return asked == 2

    # The clock stands still: only stopping can end it.
    backoff.wait(stopping)
    assert asked == 2
    before = clock.now

    def pass_time() -> bool:
        clock.now += 0.3
        return False

    backoff.wait(pass_time)
    assert 0.5 <= clock.now - before <= 1.5
