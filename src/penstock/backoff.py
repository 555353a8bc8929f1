"""Attempts that are made again: after growing pauses, or at once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from penstock.cadence import paced

_FIRST_SECONDS = paced(0.5)
_LONGEST_SECONDS = 30.0
# Who lived this long after a pause had got past what broke it before.
_HEALTHY_SECONDS = 60.0
_TURN_SECONDS = 0.05

_TRIES = 5

T = TypeVar("T")


def tried_again(attempt: Callable[[], T], error: type[Exception]) -> T:
    """What the attempt returns. It is made again at once where it raises this error, some times;
    then that is raised.
    """
    for _ in range(_TRIES - 1):
        with suppress(error):
            return attempt()
    return attempt()


class Backoff:
    """Pauses that double from ``first`` to ``longest`` seconds, with jitter; small again after a
    healthy while.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        *,
        first: float = _FIRST_SECONDS,
        longest: float = _LONGEST_SECONDS,
    ) -> None:
        self._clock = clock
        self._first = self._pause = first
        self._longest = longest
        self._end = clock()

    def next_pause(self) -> float:
        """The seconds to wait from now on. The next pause will be longer."""
        now = self._clock()
        if now - self._end > _HEALTHY_SECONDS:
            self.start_over()
        # Jitter: those whom one failure hit do not come back all at once.
        pause = self._pause * random.uniform(0.5, 1.0)  # noqa: S311 (no secret)
        self._pause = min(self._pause * 2, self._longest)
        self._end = now + pause
        return pause

    def start_over(self) -> None:
        """What was in the way is not any more: the next pause is a short one."""
        self._pause = self._first

    def wait(self, stopping: Callable[[], bool]) -> None:
        """Wait for the next pause, or until ``stopping()``."""
        self.next_pause()
        while self._clock() < self._end and not stopping():
            time.sleep(_TURN_SECONDS)
