"""Wakes who waits for something new in the change log."""

from __future__ import annotations

import threading

# How often an idle log is looked at: where nobody tells of what is new, and where somebody does,
# who may have died.
_POLL_SECONDS = 0.02
_TOLD_POLL_SECONDS = 0.1


class NewSegments:
    """Capture tells of each segment over its pipe, and the thread that plans batches waits for that
    instead of looking all the time. It is a hint: what counts is what the log shows then.
    """

    def __init__(self) -> None:
        self._came = threading.Event()
        self.are_told = False
        """Whether capture tells of all of them, because nobody else captures."""

    def came(self, *_segment: object) -> None:
        """Wake who waits, or who waits next. For any thread."""
        self._came.set()

    def wait(self) -> None:
        """Until something came since the last time, or it is time to look in any case. For one
        thread.
        """
        self._came.wait(_TOLD_POLL_SECONDS if self.are_told else _POLL_SECONDS)
        self._came.clear()
