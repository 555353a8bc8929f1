"""Which segments may go. Pure, but for the clock that is passed in."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from penstock.changelog.segment_name import SegmentName
from penstock.model.lsn import Frontier


def passed_by_all(
    segments: Sequence[SegmentName], readers: Iterable[Frontier]
) -> list[SegmentName]:
    """The segments at the beginning of the chain that no reader needs any more.

    The last segment that a new writer would keep always stays: it says where the log ends.
    Without readers all stay.
    """
    frontiers = list(readers)
    if not frontiers:
        return []
    held = min(frontiers).commit_lsn
    kept = len(segments) - 1
    while kept >= 0 and segments[kept].is_unfinished:
        kept -= 1
    passed = []
    for index, segment in enumerate(segments[: max(kept, 0)]):
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
    segments: Sequence[SegmentName], readers: Iterable[Frontier]
) -> list[SegmentName]:
    """The segments behind the last gap, if no reader needs the first of them: a removal that was
    interrupted leaves some of those before it. All of them where a reader does: then one is lost.

    Of what is removed at a time the last one goes last, so that it tells.
    """
    gaps = [i for i, (a, b) in enumerate(pairwise(segments), 1) if b.sequence != a.sequence + 1]
    if not gaps:
        return list(segments)
    behind = segments[gaps[-1] :]
    return list(behind if behind[0] in passed_by_all(behind, readers) else segments)


class Retention:
    """Remembers since when a segment is passed by all, and names those past the grace period."""

    def __init__(self, grace_seconds: float) -> None:
        self._grace = grace_seconds
        self._since: dict[SegmentName, float] = {}

    def expired(
        self, segments: Sequence[SegmentName], readers: Iterable[Frontier], now: float
    ) -> list[SegmentName]:
        passed = passed_by_all(segments, readers)
        self._since = {name: self._since.get(name, now) for name in passed}
        return [name for name in passed if now - self._since[name] >= self._grace]
