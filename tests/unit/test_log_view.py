"""What a reader knows of a log that costs something to list."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.changelog.changelog import ChangeLog
from penstock.changelog.feed import SegmentFeed, Told
from penstock.changelog.segment_name import SegmentName
from penstock.changelog.storage.folder import FolderStorage
from penstock.changelog.storage.pace import OBJECTS
from penstock.changelog.view import LogView
from penstock.model.lsn import Frontier


def segment(sequence: int, epoch: int = 1) -> SegmentName:
    after, last = 0x100 * sequence, 0x100 * (sequence + 1)
    return SegmentName(sequence, epoch, after, last, last + 8, 1, False, 0)


class Counted:
    """A log that is as slow to list as one in a bucket, and counts listings."""

    def __init__(self, log: ChangeLog) -> None:
        self.log = log
        self.listings = 0
        self.told: Told = []
        entries = log.entries

        def counted(after: str = "") -> object:
            self.listings += 1
            return entries(after)

        log.entries = counted  # type: ignore[method-assign, assignment]

    def add(self, *names: SegmentName) -> None:
        for name in names:
            self.log.segments.write(str(name), b"x", durable=False)

    def take(self) -> Told:
        told, self.told = self.told, []
        return told


@pytest.fixture
def counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counted:
    monkeypatch.setattr(FolderStorage, "pace", OBJECTS)
    return Counted(ChangeLog(str(tmp_path)))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr("penstock.changelog.view.time.monotonic", lambda: now[0])
    return now


def test_it_lists_at_the_storage_s_pace(counted: Counted, clock: list[float]) -> None:
    view = LogView(counted.log)
    counted.add(segment(1))
    assert view.listing().segments == (segment(1),)
    counted.add(segment(2))
    assert view.listing().segments == (segment(1),)
    assert counted.listings == 1
    clock[0] += OBJECTS.list_busy
    assert view.listing().segments == (segment(1), segment(2))
    for _ in range(60):
        clock[0] += 0.5
        view.listing()
    # Idle since five seconds: every two seconds, and once a whole listing.
    assert counted.listings < 2 + 10 + 15
    assert view.listing(at_least=Frontier(0, 0)).segments == (segment(1), segment(2))


def test_what_it_has_to_know_is_asked_for_at_once(counted: Counted, clock: list[float]) -> None:
    view = LogView(counted.log)
    counted.add(segment(1))
    view.listing()
    counted.add(segment(2))
    assert view.listing(at_least=segment(2).frontier).segments == (segment(1), segment(2))


def test_what_it_is_told_needs_no_listing(counted: Counted, clock: list[float]) -> None:
    view = LogView(counted.log, counted.take, sees_barriers=True)
    counted.add(segment(1))
    view.listing()
    counted.told = [(segment(1), 1), (segment(2), 7), (segment(3), 1)]
    listing = view.listing()
    assert listing.segments == (segment(1), segment(2), segment(3))
    assert listing.sizes[segment(2)] == 7
    assert counted.listings == 1


@pytest.mark.parametrize("told", [segment(3), segment(2, epoch=2)])
def test_what_does_not_follow_what_it_knows_is_only_a_hint(
    counted: Counted, clock: list[float], told: SegmentName
) -> None:
    view = LogView(counted.log, counted.take, sees_barriers=True)
    counted.add(segment(1))
    view.listing()
    counted.add(segment(2))
    counted.told = [(told, 1)]
    assert view.listing().segments == (segment(1), segment(2)), "it looked for itself"


def test_a_barrier_is_seen_in_time_whatever_is_told(counted: Counted, clock: list[float]) -> None:
    """verify waits so long before it takes its position."""
    view = LogView(counted.log, counted.take, sees_barriers=True)
    counted.add(segment(1))
    view.listing()
    counted.log.segments.child("barriers").write("b", b"", durable=False)
    for number in range(2, 12):
        clock[0] += OBJECTS.list_idle / 10
        counted.told = [(segment(number), 1)]
        counted.add(segment(number))
        listing = view.listing()
    assert listing.barriers == ("barriers/b",)


def test_each_reader_of_a_feed_is_told_everything() -> None:
    feed = SegmentFeed()
    one = feed.reader()
    feed.add(str(segment(1)), 10)
    feed.add("not a segment", 10)
    other = feed.reader()
    feed.add(str(segment(2)), 20)
    assert one() == [(segment(1), 10), (segment(2), 20)]
    assert other() == [(segment(2), 20)]
    assert one() == other() == []


def test_a_feed_keeps_little_for_who_never_asks() -> None:
    feed = SegmentFeed()
    reader = feed.reader()
    for number in range(2000):
        feed.add(str(segment(number)), 1)
    told = reader()
    # What does not follow what is known is listed.
    assert [name.sequence for name, _ in told] == list(range(1000, 2000))
