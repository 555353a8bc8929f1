"""A time of day that is set back."""

from __future__ import annotations

import time

# What is less than this delays nobody for long.
_LEAST_SECONDS = 1.0


class WallClock:
    """Notices it. Spark begins its batches at times of day: set back by an hour, the clock would
    keep it from beginning the next one for an hour.
    """

    def __init__(self) -> None:
        self._ahead = _ahead()

    def set_back(self) -> float:
        """By how many seconds since the last look; 0 where it was not."""
        before, self._ahead = self._ahead, _ahead()
        back = before - self._ahead
        return back if back >= _LEAST_SECONDS else 0.0


def _ahead() -> float:
    return time.time() - time.monotonic()
