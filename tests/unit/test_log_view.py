"""What a reader knows of a log that costs something to list."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from penstock.changelog.changelog import ChangeLog, Listing
from penstock.changelog.feed import FeedReader, Seen, SegmentFeed, Told
from penstock.changelog.segment_name import SegmentName
from penstock.changelog.shared_listing import shared_feed
from penstock.changelog.storage.folder import FolderStorage
from penstock.changelog.storage.pace import OBJECTS
from penstock.changelog.view import LogView
from penstock.changelog.writer import LogWriter
from penstock.model.lsn import Frontier
from tests.fix_pipeline import wait_until
from tests.log_sessions import Reader, Session
from tests.stream_model import LateStorage, build, memory_log


def segment(sequence: int, epoch: int = 1) -> SegmentName:
    after, last = 0x100 * sequence, 0x100 * (sequence + 1)
    return SegmentName(sequence, epoch, after, last, last + 8, 1, False, 0)


class Counted:
    """A log that is as slow to list as one in a bucket, and counts listings."""

    def __init__(self, log: ChangeLog) -> None:
        self.log = log
        self.listings = 0
        self.told: list[tuple[SegmentName, int]] = []
        self.seen: Seen | None = None
        entries = log.entries

        def counted(after: str = "") -> object:
            self.listings += 1
            return entries(after)

        log.entries = counted  # type: ignore[method-assign, assignment]

    def add(self, *names: SegmentName) -> None:
        for name in names:
            self.log.segments.write(str(name), b"x", durable=False)

    def take(self) -> Told:
        told, self.told = Told(self.told, self.seen), []
        self.seen = None
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


def test_a_new_writer_that_begins_before_what_is_known_is_found_at_once(
    counted: Counted, clock: list[float]
) -> None:
    """It has removed what ends no transaction. What the dead one had sent arrives later, and looks
    like what follows.
    """
    unfinished = [
        segment(number)._replace(after=0x200, last=0x200, is_open=True) for number in (2, 3)
    ]
    view = LogView(counted.log, counted.take, sees_barriers=True)
    counted.add(segment(1), *unfinished)
    assert view.listing().segments == (segment(1), *unfinished)
    counted.log.segments.delete(*map(str, unfinished))
    began = segment(2, epoch=2)._replace(last=0x200, rows=0)
    counted.add(began, segment(4)._replace(after=0x200))
    counted.told = [(began, 1)]
    assert view.listing().segments == (segment(1), began)


@pytest.mark.parametrize("is_whole", [True, False], ids=["all swept", "swept in part"])
@pytest.mark.parametrize("has_begun", [True, False], ids=["begun", "not begun"])
def test_the_late_end_of_a_transaction_whose_parts_were_removed_does_not_follow_them(
    clock: list[float], has_begun: bool, is_whole: bool
) -> None:
    """What is known of the log ends with parts of a transaction. A new writer removes them, and
    before or after it begins the end of it arrives that the dead one had sent.
    """
    log = memory_log(LateStorage)
    assert isinstance(log.segments, LateStorage)
    log.segments.pace = OBJECTS
    insert = ("insert", 0, (b"1", b"x", None))
    history = build([("transaction", None, [insert]), ("transaction", None, [insert] * 12)])
    dead, view = Session(log, history), LogView(log)
    reader = Reader(log, view)
    for _ in range(4):
        dead.receive(4)
        dead.publish()
    last_part = str(view.listing().segments[-1])
    assert sum(name.is_unfinished for name in view.listing().segments) > 1
    log.segments.is_slow = True
    dead.receive(99)
    dead.publish()
    log.segments.is_slow = False
    data = log.segments.files[last_part]
    successor = Session(log, history).writer if has_begun else LogWriter(log)
    if not is_whole:
        log.segments.files[last_part] = data
    log.segments.arrive(0)
    clock[0] += OBJECTS.list_idle
    assert view.listing().segments == log.list().segments == successor.listing.segments
    Session(log, history).finish()
    clock[0] += OBJECTS.list_idle
    while reader.read(10**6):
        pass
    assert reader.changes == history.changes


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


def test_who_is_told_of_listings_does_not_list(counted: Counted, clock: list[float]) -> None:
    view = LogView(counted.log, counted.take, sees_barriers=True)
    barriers = counted.log.segments.child("barriers")
    barriers.write("b", b"", durable=False)
    counted.add(segment(1))
    view.listing()
    for number in range(2, 100):
        clock[0] += 2.0
        counted.add(segment(number))
        counted.told = [(segment(number), 1)]
        counted.seen = Seen(clock[0] - 0.5, segment(number), ("barriers/b",))
        listing = view.listing()
        assert listing.segments[-1] == segment(number)
        assert listing.barriers == ("barriers/b",)
    # One at the start, and one after a minute, since before that nobody had told of listings.
    assert counted.listings <= 2
    barriers.delete("b")
    # He who told is gone: what he last saw is good for so long, and no longer.
    clock[0] += OBJECTS.notice - 1.6
    view.listing()
    assert counted.listings <= 2
    clock[0] += 0.2
    assert view.listing().barriers == ()
    assert counted.listings <= 3


def test_what_was_missed_of_the_feed_is_asked_for(counted: Counted, clock: list[float]) -> None:
    view = LogView(counted.log, counted.take, sees_barriers=True)
    counted.add(segment(1))
    view.listing()
    counted.add(segment(2))
    counted.seen = Seen(clock[0] + 1, segment(2), ())
    clock[0] += 1
    assert view.listing().segments == (segment(1), segment(2))


def test_an_older_listing_of_another_hides_no_barrier(counted: Counted, clock: list[float]) -> None:
    view = LogView(counted.log, counted.take, sees_barriers=True)
    counted.add(segment(1))
    counted.log.segments.child("barriers").write("b", b"", durable=False)
    view.listing()
    counted.seen = Seen(clock[0] - 0.1, segment(1), ())
    clock[0] += 0.1
    assert view.listing().barriers == ("barriers/b",)


def test_one_listing_is_for_all(counted: Counted, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of many readers would list about as often as the one that does it for them."""
    pace = replace(OBJECTS, list_busy=0.05, list_idle=0.2, notice=30.0)
    monkeypatch.setattr(FolderStorage, "pace", pace)
    counted.add(segment(1))
    with shared_feed(counted.log, told=False) as feed:
        assert feed is not None
        views = [LogView(counted.log, feed.reader(), sees_barriers=True) for _ in range(20)]

        def all_see(number: int) -> bool:
            found = [view.listing() for view in views]
            return all(
                listing.segments[-1] == segment(number)
                and (number == 1 or f"barriers/b{number}" in listing.barriers)
                for listing in found
            )

        wait_until(lambda: feed.path.stat().st_size, "the first listing is told")
        assert all_see(1)
        own = [view.listed_at for view in views]
        for number in range(2, 10):
            counted.add(segment(number))
            counted.log.segments.child("barriers").write(f"b{number}", b"", durable=False)
            wait_until(partial(all_see, number), "it is told, and so are barriers")
        assert [view.listed_at for view in views] == own, "none of them has listed again"


def test_a_feed_brings_segments_to_another_process(tmp_path: Path) -> None:
    feed = SegmentFeed(str(tmp_path))
    reader = FeedReader(str(feed.path))
    assert reader() == Told()
    feed.add(str(segment(1)), 10)
    feed.add("not a segment", 10)
    assert reader() == Told([(segment(1), 10)]) == feed.take()
    assert reader() == Told()
    seen = Seen(12.25, segment(2), ("barriers/b@shop.lake",))
    feed.tell([(segment(2), 7)], Seen(11.5, None, ()))
    feed.tell([], seen)
    assert reader() == Told([(segment(2), 7)], seen)
    assert feed.take() == Told(), "who lists is not told what he told"
    with feed.path.open("ab") as file:
        file.write(f"{segment(3)} 2".encode())
        file.flush()
        assert reader() == Told(), "half a line"
        file.write(b"0\n= half\n")
    assert reader() == Told([(segment(3), 20)])
    feed.close()
    assert reader() == Told()


def test_a_feed_s_file_stays_small(tmp_path: Path) -> None:
    feed, found = SegmentFeed(str(tmp_path)), []
    reader = FeedReader(str(feed.path))
    for number in range(2000):
        feed.add(str(segment(number)), 1)
        found += reader().segments
    assert [name.sequence for name, _ in found] == list(range(2000))
    assert feed.path.stat().st_size < 2**17
    assert feed.path.stat().st_mode & 0o777 == 0o600
    feed.close()


def test_of_a_folder_only_what_is_new_is_looked_at(tmp_path: Path) -> None:
    counted = Counted(ChangeLog(str(tmp_path)))
    view, wholes = LogView(counted.log, sees_barriers=True), []

    def whole() -> Listing:
        wholes.append(1)
        return ChangeLog.list(counted.log)

    counted.log.list = whole  # type: ignore[method-assign]
    for number in range(1, 6):
        counted.add(segment(number))
        assert view.listing().segments[-1] == segment(number)
        assert view.listing().sizes[segment(number)] == 1
    counted.log.segments.child("barriers").write("b", b"", durable=False)
    assert view.listing().barriers == ("barriers/b",)
    assert len(wholes) == 1
    counted.add(segment(6, epoch=2), segment(7))
    assert view.listing().segments[-1] == segment(6, epoch=2), "a stale writer's does not count"


def test_what_a_new_writer_puts_in_the_place_of_an_open_end(tmp_path: Path) -> None:
    """It may have made one segment of what stood in two, the name of which sorts before them."""
    counted = Counted(ChangeLog(str(tmp_path)))
    ends = [replace_open(segment(number)) for number in (2, 3)]
    counted.add(segment(1), *ends)
    view = LogView(counted.log)
    assert view.listing().segments == (segment(1), *ends)
    counted.log.segments.delete(*map(str, ends))
    assert view.listing().segments == (segment(1),)
    view = LogView(counted.log)
    counted.add(*ends)
    view.listing()
    counted.log.segments.delete(*map(str, ends))
    counted.add(segment(2, epoch=2))
    assert view.listing().segments == (segment(1), segment(2, epoch=2))


def replace_open(name: SegmentName) -> SegmentName:
    """The same one as a part of a transaction that is not whole."""
    return name._replace(after=0x200, last=0x200, end_lsn=0x208, is_open=True)
