"""One listing for all readers of a log on this machine, where a listing costs something."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.changelog.changelog import ChangeLog
from penstock.changelog.feed import Seen, SegmentFeed
from penstock.changelog.segment_name import SegmentName
from penstock.changelog.view import LogView
from penstock.model.errors import PenstockError

_TURN_SECONDS = 0.1


@contextmanager
def shared_feed(log: ChangeLog, *, told: bool) -> Iterator[SegmentFeed | None]:
    """A feed of what the log holds, from a thread that lists it at the storage's pace, for as long
    as the block; None for a folder, which everybody lists for himself. `penstock run` has one, also
    for all of its destinations. ``told``: capture adds each segment to the feed.
    """
    if not log.segments.pace.list_busy:
        yield None
        return
    feed = SegmentFeed()
    listing = _SharedListing(log, feed, told=told)
    listing.start()
    try:
        yield feed
    finally:
        listing.stop()
        feed.close()


class _SharedListing:
    def __init__(self, log: ChangeLog, feed: SegmentFeed, *, told: bool) -> None:
        self._feed = feed
        self._pause = log.segments.pace.list_idle
        self._view = LogView(log, feed.take if told else None, sees_barriers=True)
        self._listed_at = 0.0
        self._last: SegmentName | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, name="penstock-listing", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """It may be in the middle of a request, which it finishes for nobody."""
        self._ending.set()
        self._thread.join(_TURN_SECONDS)

    def _run(self) -> None:
        pause = _TURN_SECONDS
        while not self._ending.wait(pause):
            try:
                self._look()
                pause = _TURN_SECONDS
            except PenstockError:
                # Whoever is told nothing asks for himself, and has somebody to tell of the error.
                pause = self._pause

    def _look(self) -> None:
        listing = self._view.listing()
        if self._view.listed_at == self._listed_at:
            return
        self._listed_at, before = self._view.listed_at, self._last
        self._last = listing.segments[-1] if listing.segments else None
        new = [
            (name, listing.sizes[name])
            for name in listing.segments
            if before is not None and (name.epoch, name.sequence) > (before.epoch, before.sequence)
        ]
        self._feed.tell(new, Seen(self._listed_at, self._last, listing.barriers))
