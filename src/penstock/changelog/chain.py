"""Which segments count, and how far a reader may go. Pure: names in, names out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from penstock.changelog.segment_name import SegmentName
from penstock.model.errors import LogError
from penstock.model.lsn import Frontier, format_lsn

_MAX_LSN = 2**64 - 1


@dataclass(frozen=True)
class Pointer:
    """What one reader takes from one segment: the rows with after < commit_lsn <= upto."""

    segment: str
    size: int
    after: int
    upto: int


@dataclass(frozen=True)
class Batch:
    """The next whole transactions for a reader, and where it stands once it holds them."""

    frontier: Frontier
    pointers: tuple[Pointer, ...]


def chain(names: Iterable[SegmentName]) -> list[SegmentName]:
    """The segments that count, in order: a stale writer's are left out.

    Where two writers made the same number the later writer (higher epoch) wins, and whatever a
    writer added after a later one began does not count. Nor does what reaches beyond the place
    where a later one began, which has not seen it: that is known also when the later one's first
    segments are removed again.
    """
    newest: dict[int, SegmentName] = {}
    for name in names:
        held = newest.get(name.sequence)
        if held is None or name.epoch > held.epoch:
            newest[name.sequence] = name
    result: list[SegmentName] = []
    epoch = -1
    for sequence in sorted(newest):
        name = newest[sequence]
        if name.epoch >= epoch:
            epoch = name.epoch
            result.append(name)
    kept: list[SegmentName] = []
    begins = inf  # the commit LSN after which the next writer's segments begin
    for name in reversed(result):
        if kept and kept[-1].epoch > name.epoch:
            begins = kept[-1].after
        if name.last <= begins:
            kept.append(name)
    return kept[::-1]


def has_gap(segments: Sequence[SegmentName]) -> bool:
    """True if a segment is missing in the middle.

    A folder listing is no snapshot: a gap can be the trace of a listing that ran beside a writer.
    Segments appear in order, so a gap that a second listing shows too is real.
    """
    return first_gap(segments) > 0


def first_gap(segments: Sequence[SegmentName]) -> int:
    """The place of the segment behind the first gap; 0 where there is none."""
    gaps = (i for i, (a, b) in enumerate(pairwise(segments), 1) if b.sequence != a.sequence + 1)
    return next(gaps, 0)


def without_stale_tail(segments: Sequence[SegmentName], newest_epoch: int) -> list[SegmentName]:
    """The segments before the first gap, if all after it are of writers that were fenced.

    A writer that was fenced in the middle of a publication can leave a segment behind a number
    that its successor has swept and not used again yet: one, for then it stops. Beside it there may
    be such as end no transaction, where the successor died while it swept. Several of one writer
    that do end some were there before: then a segment is lost, and they are not.
    """
    gap = first_gap(segments)
    behind = segments[gap:]
    ending = [name.epoch for name in behind if not name.is_unfinished]
    is_stale = all(name.epoch < newest_epoch for name in behind)
    return list(segments[:gap] if gap and is_stale and len({*ending}) == len(ending) else segments)


def next_batch(
    segments: Sequence[SegmentName],
    sizes: dict[SegmentName, int],
    start: Frontier,
    max_bytes: int,
    limit: int | None = None,
) -> Batch | None:
    """What a reader that stands at ``start`` takes next; None if there is nothing new.

    ``segments`` is a chain. Takes segments until ``max_bytes`` is reached, but never ends inside a
    transaction: one that is larger than ``max_bytes`` makes a larger batch.

    With ``limit``, the end of a WAL record, only transactions with a commit LSN below it count. A
    reader that holds them all stands at an ``end_lsn`` of exactly ``limit``, once the log is there.
    """
    if limit is not None and start.end_lsn >= limit:
        return None
    todo = _after(segments, start)
    taken = 0
    end: Frontier | None = None
    for segment in todo:
        if end is not None and taken >= max_bytes:
            break
        taken += _bytes_of(segment, sizes)
        frontier = segment.frontier if limit is None else _within(segment.frontier, limit)
        if frontier > start:
            end = frontier
        if limit is not None and segment.last >= limit:
            break
    if end is None:
        return None
    return Batch(end, between(segments, sizes, start.commit_lsn, end.commit_lsn))


def _within(frontier: Frontier, limit: int) -> Frontier:
    """The part of ``frontier`` below ``limit``.

    Where the last commit below the limit lies is not known from a segment's name, and need not be.
    A logical message without a transaction may stand at the byte before the limit, for its end.
    """
    if frontier.commit_lsn < limit:
        return Frontier(frontier.commit_lsn, min(frontier.end_lsn, limit))
    return Frontier.before(limit)


def waiting_bytes(
    segments: Sequence[SegmentName], sizes: dict[SegmentName, int], start: Frontier
) -> int:
    """The size of the segments with whole transactions that a reader at ``start`` does not hold."""
    reached, whole, size = start, 0, 0
    for segment in _after(segments, start):
        size += _bytes_of(segment, sizes)
        if segment.frontier > reached:
            reached, whole = segment.frontier, size
    return whole


def between(
    segments: Sequence[SegmentName], sizes: dict[SegmentName, int], after: int, upto: int
) -> tuple[Pointer, ...]:
    """Pointers to all rows of the transactions with after < commit_lsn <= upto."""
    return _pointers(segments, sizes, after, upto, None)


def unfinished(
    segments: Sequence[SegmentName], sizes: dict[SegmentName, int], start: Frontier
) -> tuple[Pointer, ...]:
    """Pointers to what the log has so far of the transaction that its last segment leaves open, for
    a reader that stands at ``start`` and holds all before it; not of one with schema changes.

    They are the first ones of the batch that holds the transaction, if its writer finishes it.
    """
    if not segments or not segments[-1].is_open or segments[-1].frontier > start:
        return ()
    pointers = _pointers(segments, sizes, start.commit_lsn, _MAX_LSN, _MAX_LSN)
    named = {pointer.segment for pointer in pointers}
    if any(segment.has_schema_changes for segment in segments if str(segment) in named):
        return ()
    return pointers


def _pointers(
    segments: Sequence[SegmentName],
    sizes: dict[SegmentName, int],
    after: int,
    upto: int,
    finished_by: int | None,
) -> tuple[Pointer, ...]:
    """``finished_by``: a commit that is taken for the one which ends what the last segment leaves
    open.
    """
    _check_complete(segments, after)
    pointers = []
    # What a writer left open counts only if the same writer finished it: the next writer received
    # the whole transaction again. Known only from what follows, hence backwards.
    following: SegmentName | None = None
    for segment in reversed(segments):
        if following is None:
            pass
        elif following.epoch != segment.epoch:
            finished_by = None
        elif following.last > following.after:
            finished_by = following.last
        following = segment
        held_up_to = segment.last
        if segment.is_open and finished_by is not None:
            held_up_to = finished_by
        bound = min(upto, held_up_to)
        if segment.rows and bound > after and bound > segment.after:
            pointers.append(Pointer(str(segment), _bytes_of(segment, sizes), after, bound))
    pointers.reverse()
    return tuple(pointers)


def _bytes_of(segment: SegmentName, sizes: dict[SegmentName, int]) -> int:
    """What whoever reads a segment has in memory."""
    return segment.unpacked or sizes.get(segment, 0)


def lacks(segments: Sequence[SegmentName], start: Frontier) -> bool:
    """Whether something is gone that a reader at ``start`` needs. Of an empty log nothing is known:
    there the slot tells.
    """
    return bool(segments) and segments[0].after > start.commit_lsn


def _after(segments: Sequence[SegmentName], start: Frontier) -> Sequence[SegmentName]:
    index = len(segments)
    while index and segments[index - 1].frontier > start:
        index -= 1
    return segments[index:]


def _check_complete(segments: Sequence[SegmentName], after: int) -> None:
    """Raise if transactions after ``after`` are missing from the log."""
    held = after
    for segment in segments:
        if segment.after > held:
            raise LogError(
                f"the change log lacks what was committed between {format_lsn(held)} and "
                f"{format_lsn(segment.after)}, which this reader does not hold yet",
                remedy="start this reader at the log's beginning if it does not need these "
                "changes; else begin anew with `penstock destroy` and `penstock run`",
            )
        held = max(held, segment.last)
