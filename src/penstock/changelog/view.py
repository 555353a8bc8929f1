"""What one reader knows of a log's segments, without listing all of them each time."""

from __future__ import annotations

import time
from itertools import pairwise

from penstock.changelog import chain
from penstock.changelog.changelog import ChangeLog, Listing
from penstock.changelog.feed import Seen, TakeTold
from penstock.changelog.segment_name import SegmentName
from penstock.model.lsn import Frontier

# A reader that has found nothing for this long looks less often.
_IDLE_SECONDS = 5.0
# One that is told of all that is new looks this often nevertheless: whoever tells may have died.
_TOLD_SECONDS = 15.0
# What retention has removed is forgotten this often; by those for whom somebody else lists, less
# often: there are many of them.
_WHOLE_SECONDS = 60.0
_WHOLE_SHARED_SECONDS = 240.0
# By how much the clocks may differ of two processes on one machine, each on a core of its own.
_CLOCKS_APART = 1.0


class LogView:
    """Asks at the pace of the storage, for what is new alone; between two questions it says what it
    knew, and what was ``told``. Of a folder, which costs little to list, it always says what is
    there. For one thread.

    Who tells may list as well, for many: then it does so itself only where nothing is heard of him,
    or something was missed.

    With ``sees_barriers`` whatever it says was listed within the last ``pace.notice`` seconds: a
    barrier that is older than that is in it.
    """

    def __init__(
        self, log: ChangeLog, told: TakeTold | None = None, *, sees_barriers: bool = False
    ) -> None:
        self._log = log
        self._pace = log.segments.pace
        self._told = told
        self._told_pace = self._pace.list_idle if sees_barriers else _TOLD_SECONDS
        self._seen_pace = self._pace.notice - _CLOCKS_APART if sees_barriers else _TOLD_SECONDS
        self._is_shared = False
        self._known: Listing | None = None
        self._next = self._whole_at = self._found_at = 0.0
        self.listed_at = 0.0
        """When it last began to list, by the monotonic clock."""

    def listing(self, at_least: Frontier | None = None) -> Listing:
        """The log's segments. With ``at_least`` it is asked for at once unless that is known."""
        now = time.monotonic()
        before = self._known
        if self._told is not None and not self._take(self._told):
            # All of it: where another writer has taken over it may have begun before what we know.
            self._whole_at = 0.0
        known = self._known
        due = min(self._next, self._whole_at)
        if known is not None and now < due and _reaches(known, at_least):
            return known
        if known is None or now >= self._whole_at:
            self._known = self._settled(self._log.list())
            self._whole_at = now + (_WHOLE_SHARED_SECONDS if self._is_shared else _WHOLE_SECONDS)
        else:
            self._known = self._settled(self._with_new(known))
        if before is None or self._known.segments != before.segments:
            self._found_at = now
        self._next, self.listed_at = now + self._pause(now), now
        return self._known

    def _pause(self, now: float) -> float:
        if self._told is not None:
            return self._told_pace
        idle = now - self._found_at >= _IDLE_SECONDS
        return self._pace.list_idle if idle else self._pace.list_busy

    def _take(self, told: TakeTold) -> bool:
        """Put what was told behind what is known; False where it does not fit there."""
        known = self._known
        new = told()
        if known is None:
            return True
        if new.segments:
            segments, sizes = list(known.segments), dict(known.sizes)
            for name, size in new.segments:
                if name in sizes:
                    continue
                last = segments[-1] if segments else None
                if last is None or not _follows(name, last):
                    return False
                segments.append(name)
                sizes[name] = size
            known = self._known = Listing(tuple(segments), sizes, known.barriers)
        return new.seen is None or self._take_seen(known, new.seen)

    def _take_seen(self, known: Listing, seen: Seen) -> bool:
        """Take somebody's listing for our own; False where it has shown more than we were told."""
        if seen.last is not None:
            last = known.segments[-1] if known.segments else None
            shown = (seen.last.epoch, seen.last.sequence)
            if last is None or (last.epoch, last.sequence) < shown:
                return False
        if seen.at > self.listed_at:
            self._known = Listing(known.segments, known.sizes, seen.barriers)
            self._next = max(self._next, seen.at + self._seen_pace)
            self._is_shared = True
        return True

    def _settled(self, listing: Listing) -> Listing:
        """Without its last segment, where a write can come late and this one may have: its writer
        was replaced by one that has written nothing yet, and may not have seen it. What stands
        before it that writer had looked after, and what is known already was looked at here.
        """
        last = listing.segments[-1] if listing.segments else None
        if last is None or not self._log.segments.has_late_writes:
            return listing
        is_known = self._known is not None and last in self._known.sizes
        if is_known or not self._log.is_replaced(last.epoch):
            return listing
        sizes = {name: size for name, size in listing.sizes.items() if name != last}
        return Listing(listing.segments[:-1], sizes, listing.barriers)

    def _with_new(self, known: Listing) -> Listing:
        """What is there from the last segment on that a new writer keeps; everything where one has
        taken over, for it may have removed what is known behind that one, and begun there.
        """
        kept = len(known.segments) - 1
        while kept >= 0 and known.segments[kept].is_unfinished:
            kept -= 1
        if kept < 0:
            return self._log.list()
        found, barriers = self._log.entries(f"{known.segments[kept].sequence:012d}")
        if not all(name in found for name in known.segments[kept:]):
            return self._log.list()
        last = known.segments[-1]
        new = {name: size for name, size in found.items() if name not in known.sizes}
        added = sorted(new)
        if all(_follows(name, before) for before, name in pairwise([last, *added])):
            # As it is nearly always: what is known stays as it is.
            sizes = {**known.sizes, **new} if new else known.sizes
            return Listing((*known.segments, *added), sizes, barriers)
        if any(name.epoch != last.epoch for name in new):
            return self._log.list()
        sizes = {**known.sizes, **new}
        segments = chain.chain(sizes)
        if chain.has_gap(segments):
            return self._log.list()
        return Listing(tuple(segments), sizes, barriers)


def _follows(name: SegmentName, last: SegmentName) -> bool:
    return (name.epoch, name.sequence) == (last.epoch, last.sequence + 1)


def _reaches(listing: Listing, frontier: Frontier | None) -> bool:
    return frontier is None or (listing.frontier is not None and listing.frontier >= frontier)
