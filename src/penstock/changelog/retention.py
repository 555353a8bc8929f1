"""Which segments may go. Pure, but for the clock that is passed in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from penstock.changelog.chain import first_gap
from penstock.changelog.segment_name import SegmentName
from penstock.model.lsn import Frontier

# A store may take a request this long after its sender has given it up.
_LATE_SECONDS = 120.0


def passed_by_all(
    segments: Sequence[SegmentName], readers: Iterable[Frontier]
) -> list[SegmentName]:
    """The segments at the beginning of the chain that no reader needs any more.

    The last segment that a new writer would keep always stays: it says where the log ends.
    Without readers all stay.
    """
    kept = len(segments) - 1
    while kept >= 0 and segments[kept].is_unfinished:
        kept -= 1
    return _passed(segments, readers)[: max(kept, 0)]


def _passed(segments: Sequence[SegmentName], readers: Iterable[Frontier]) -> list[SegmentName]:
    """The same, the last one included."""
    frontiers = list(readers)
    if not frontiers:
        return []
    held = min(frontiers).commit_lsn
    passed = []
    for index, segment in enumerate(segments):
        needed = segment.last
        if segment.is_open:
            # Its last transaction ends in a later segment.
            later = (s.last for s in segments[index + 1 :] if s.last > segment.last)
            finished = next(later, None)
            if finished is None:
                break
            needed = finished
        if held < needed:
            break
        passed.append(segment)
    return passed


def without_passed_head(
    segments: Sequence[SegmentName], readers: Iterable[Frontier], *, late_writes: bool = False
) -> list[SegmentName]:
    """The segments without those before a gap where no reader needs what is missing there. Where
    one may need it the gap stays: then a segment is lost, or what is behind it does not count.

    A removal that was interrupted leaves some segments before gaps. Then all readers hold the
    first one behind each: of what is removed at a time the last one goes last, so that it tells.

    With ``late_writes``, what a writer had sent may also arrive when it is replaced, and all around
    it is removed. Then what stands before the gap is of earlier writers than what is behind it, and
    all readers hold what was committed before that. (The transaction that the first one behind the
    gap ends may have begun in a segment that is missing; but each writer begins with a segment
    without rows, so that two are lost where that is so.)
    """
    left, frontiers = list(segments), list(readers)
    # From the first gap on: what is behind the last one may be a fenced writer's, and not count.
    while frontiers and (gap := first_gap(left)):
        before, behind = left[gap - 1], left[gap:]
        is_late = late_writes and before.epoch < behind[0].epoch
        is_held = is_late and min(frontiers).commit_lsn >= behind[0].after
        if not is_held and behind[0] not in _passed(behind, frontiers):
            break
        left = behind
    return left


PassedSince: TypeAlias = dict[SegmentName, float]
"""When each segment that all have passed was first seen to be."""


class Retention:
    """Remembers since when a segment is passed by all, and names those past the grace period.
    ``since`` is where: sessions may be shorter than the grace period, all of them.

    With ``late_writes`` that is never so short that a client's first attempt, which was given up
    before the second one succeeded, could bring back what is removed: nobody could tell it from the
    rest of a log that has lost what is behind it.
    """

    def __init__(
        self, grace_seconds: float, since: PassedSince | None = None, *, late_writes: bool = False
    ) -> None:
        self._grace = max(grace_seconds, _LATE_SECONDS) if late_writes else grace_seconds
        self._since: PassedSince = {} if since is None else since

    def expired(
        self, segments: Sequence[SegmentName], readers: Iterable[Frontier], now: float
    ) -> list[SegmentName]:
        passed = passed_by_all(segments, readers)
        since = {name: self._since.get(name, now) for name in passed}
        self._since.clear()
        self._since.update(since)
        return [name for name in passed if now - self._since[name] >= self._grace]
