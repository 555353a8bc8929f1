"""Slows down who guesses: after some wrong tokens, an address has to wait."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable

MOST_FAILURES = 10
WINDOW_SECONDS = 60.0
_MOST_ADDRESSES = 10_000


class Failures:
    """Counts per address, in bounded memory. May be used by any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failed: OrderedDict[str, deque[float]] = OrderedDict()

    def add(self, address: str) -> None:
        with self._lock:
            times = self._failed.setdefault(address, deque(maxlen=MOST_FAILURES))
            times.append(self._clock())
            self._failed.move_to_end(address)
            if len(self._failed) > _MOST_ADDRESSES:
                self._failed.popitem(last=False)

    def wait_seconds(self, address: str) -> int:
        """How long the address has to wait before it may try again; 0 where it need not."""
        with self._lock:
            times = self._failed.get(address)
            if times is None or len(times) < MOST_FAILURES:
                return 0
            return max(0, int(WINDOW_SECONDS - (self._clock() - times[0]) + 0.999))
