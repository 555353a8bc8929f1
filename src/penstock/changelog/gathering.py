"""Whether what waits in the log is to wait a moment for more of it. Pure."""

from __future__ import annotations

# A line that fills a segment so far before its age is busy: more is on its way.
_BUSY_BYTES = 2 * 2**20
# A batch of this size is worth its fixed costs.
_ENOUGH_BYTES = 24 * 2**20
# So long what waits does so at most, and the line is given for its next segment.
_MOST_SECONDS = 0.3
_NEXT_SECONDS = 0.15


class Gathering:
    """A batch costs some 50 ms of the processor, however small it is. A busy line brings in a
    moment what makes it a few times larger; a quiet one would only be kept waiting.
    """

    def __init__(self) -> None:
        self._since: float | None = None
        self._newest: tuple[object, float] = (None, 0.0)

    def waits(self, size: int, newest: object, newest_size: int, now: float) -> bool:
        """Whether a batch of ``size`` bytes is to wait for more; ``newest`` is the last segment of
        all, and ``newest_size`` its own.
        """
        if newest != self._newest[0]:
            self._newest = newest, now
        if self._since is None:
            self._since = now
        is_busy = newest_size >= _BUSY_BYTES and now < self._newest[1] + _NEXT_SECONDS
        waits = is_busy and size < _ENOUGH_BYTES and now < self._since + _MOST_SECONDS
        if not waits:
            self._since = None
        return waits
