"""Growing pauses between attempts."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

_FIRST_SECONDS = 0.5
_LONGEST_SECONDS = 30.0
# Who lived this long after a pause had got past what broke it before.
_HEALTHY_SECONDS = 60.0
_TURN_SECONDS = 0.05


class Backoff:
    """Pauses that double up to 30 s, with jitter; small again after a healthy while."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._pause = _FIRST_SECONDS
        self._end = clock()

    def next_pause(self) -> float:
        """The seconds to wait from now on. The next pause will be longer."""
        now = self._clock()
        if now - self._end > _HEALTHY_SECONDS:
            self._pause = _FIRST_SECONDS
        # Jitter: those whom one failure hit do not come back all at once.
        pause = self._pause * random.uniform(0.5, 1.0)  # noqa: S311 (no secret)
        self._pause = min(self._pause * 2, _LONGEST_SECONDS)
        self._end = now + pause
        return pause

    def wait(self, stopping: Callable[[], bool]) -> None:
        """Wait for the next pause, or until ``stopping()``."""
        self.next_pause()
        while self._clock() < self._end and not stopping():
            time.sleep(_TURN_SECONDS)
