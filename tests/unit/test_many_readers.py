"""Capture with several destinations: for whom the log is kept, and who is told to be behind."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from penstock.changelog.barrier import Barrier, BarrierWatch
from penstock.changelog.changelog import ChangeLog, Listing, ReaderState
from penstock.changelog.segment_name import SegmentName
from penstock.config.models import ChangeLogConfig
from penstock.metrics.health import Health
from penstock.model.errors import LogError, LogUnavailable
from penstock.model.lsn import Frontier
from penstock.source.capture.keeper import Awaited, FilledLog, Limits, LogKeeper
from penstock.source.capture.link import Link
from penstock.source.postgres.capture import process
from penstock.source.postgres.capture.process import run_capture
from tests.unit.test_capture_session import FIRST, SECOND, START, THIRD, FedStream, capture
from tests.unit.test_capture_sessions import Unpaused

GRACE = Limits(2**30, 60.0)
SHOP = Awaited({"shop.a": "a", "shop.b": "b"}, Frontier(START.commit_lsn, START.commit_lsn))


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    """With three segments, each of one transaction."""
    log = ChangeLog(str(tmp_path / "log"))
    for at in (FIRST, SECOND, THIRD):
        capture(log, FedStream(at), turns=1)
    return log


class Writer:
    """What a keeper asks of the log's writer."""

    def __init__(self, log: ChangeLog) -> None:
        self._log = log
        self.removed: list[Any] = []

    @property
    def listing(self) -> Any:
        return self._log.list()

    @property
    def total_bytes(self) -> int:
        return self._log.list().total_bytes

    def remove(self, segments: list[Any]) -> None:
        self.removed += segments


def keeper(
    log: ChangeLog, awaited: Awaited = SHOP, max_bytes: int = 1, link: Link | None = None
) -> LogKeeper:
    filled = FilledLog(log, cast("Any", Writer(log)), link or Link(), awaited)
    return LogKeeper(filled, Limits(max_bytes, 0.0), dict)


def test_what_a_reader_has_not_written_down_is_not_removed(log: ChangeLog) -> None:
    """To others it is needed: with a gap in it the log would seem to have lost a segment."""
    link = Link()
    link.told["shop"] = ReaderState(THIRD, 0, 0.0)
    kept = keeper(log, Awaited(), link=link)
    writer = cast("Any", kept)._writer
    kept.look(now=True)
    assert kept.readers.held_lsn == THIRD.end_lsn, "it may be confirmed"
    assert not writer.removed
    log.set_reader("shop", FIRST)
    kept.look(now=True)
    assert [segment.last for segment in writer.removed] == [FIRST.commit_lsn]


def test_in_a_store_nothing_goes_while_it_may_arrive_once_more(
    log: ChangeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("penstock.source.capture.keeper.time.monotonic", lambda: now[0])
    log.segments.has_late_writes = True
    kept = keeper(log, Awaited())
    writer = cast("Any", kept)._writer
    log.set_reader("shop", FIRST)
    for seconds in (0, 119):
        now[0] += seconds
        kept.look(now=True)
        assert not writer.removed
    now[0] += 1
    kept.look(now=True)
    assert [segment.last for segment in writer.removed] == [FIRST.commit_lsn]


def test_sessions_shorter_than_the_grace_period_clean_the_log_together(
    log: ChangeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk without room, or a proxy, ends each after seconds; the room is freed nevertheless."""
    now, removed = [1000.0], []
    monkeypatch.setattr("penstock.source.capture.keeper.time.monotonic", lambda: now[0])
    log.set_reader("shop", FIRST)

    def session(_config: Any, log: ChangeLog, *given: Any, **_: Any) -> None:
        writer: Any = Writer(log)
        passed = [each for each in given if isinstance(each, dict)]
        LogKeeper(FilledLog(log, writer, Link(), Awaited(), *passed), GRACE, dict).look(now=True)
        removed.append([segment.last for segment in writer.removed])
        now[0] += 25
        if len(removed) < 4:
            raise LogUnavailable("no space left on device", remedy="free some")

    monkeypatch.setattr(process, "_run_session", session)
    monkeypatch.setattr("gc.disable", lambda: None)
    config: Any = SimpleNamespace(change_log=ChangeLogConfig(path=log.root.path))
    run_capture(config, None, Unpaused())
    assert removed == [[], [], [], [FIRST.commit_lsn]]


def test_who_has_never_run_holds_slot_and_log(log: ChangeLog) -> None:
    kept = keeper(log)
    log.set_reader("shop.a", THIRD)
    kept.look(now=True)
    assert kept.readers.held_lsn == START.commit_lsn, "nothing more is confirmed"
    assert kept.readers.absent == {"shop.b"}
    assert kept.readers.last == "shop.b"


def test_one_that_is_new_is_noticed(log: ChangeLog) -> None:
    kept = keeper(log)
    log.set_reader("shop.a", THIRD)
    log.set_reader("shop.b", SECOND)
    log.set_reader("shop.c", FIRST)  # of a file that capture has not read
    kept.look(now=True)
    assert kept.readers.held_lsn == FIRST.end_lsn


def test_whose_tables_were_set_aside_has_passed_what_its_stream_has(log: ChangeLog) -> None:
    kept = keeper(log)
    log.set_reader("shop.a", FIRST, stream=THIRD)
    log.set_reader("shop.b", SECOND)
    kept.look(now=True)
    assert kept.readers.held_lsn == FIRST.end_lsn
    assert kept.readers.stream == SECOND
    log.remove_reader("shop.b")
    kept.look(now=True)
    assert kept.readers.stream == THIRD


def test_one_that_was_given_up_holds_nothing(log: ChangeLog) -> None:
    kept = keeper(log)
    log.set_reader("shop.a", THIRD)
    log.set_reader("shop.b", FIRST)
    kept.look(now=True)
    log.remove_reader("shop.b")
    kept.look(now=True)
    assert kept.readers.held_lsn == THIRD.end_lsn
    assert not kept.readers.absent


def test_a_pipeline_of_one_destination_waits_for_nobody_else(log: ChangeLog) -> None:
    """Who only captures for Spark jobs of his own has a destination that never runs."""
    kept = keeper(log, Awaited())
    log.set_reader("job", THIRD)
    kept.look(now=True)
    assert kept.readers.held_lsn == THIRD.end_lsn


def test_a_full_log_names_who_is_behind_and_what_to_do(
    log: ChangeLog, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = keeper(log)
    log.set_reader("shop.a", THIRD)
    log.set_reader("shop.b", FIRST)
    kept.is_paused = True
    kept.look(now=True)
    kept.look(now=True)
    report = kept.report("paused")
    assert report["held_by"] == "shop.b"
    said = capsys.readouterr().err
    assert said.count("the change log is full") == 1
    assert "capture waits until destination b has taken from it" in said
    assert "penstock destroy FILE --only b" in said
    health = Health()
    health.captures({**report, "at": 1.0})
    assert report["full"] in health.ready().body["reasons"]


def test_one_that_never_ran_is_named_as_such(log: ChangeLog) -> None:
    kept = keeper(log)
    log.set_reader("shop.a", THIRD)
    kept.is_paused = True
    kept.look(now=True)
    assert "destination b has taken from it; it has never run" in kept.report("paused")["full"]


def test_where_a_reader_began_is_kept(log: ChangeLog) -> None:
    log.set_reader("shop.b", SECOND, 0, None, FIRST, durable=True)
    found = log.reader("shop.b")
    assert found is not None
    assert (found.frontier, found.begin) == (SECOND, FIRST)
    assert ReaderState.from_json(ReaderState(FIRST).to_json()).begin is None
    assert "begin" not in ReaderState(FIRST).to_json(), "as before for the only destination"


def test_a_barrier_holds_one_reader_alone(log: ChangeLog) -> None:
    def held(reader: str | None) -> int | None:
        return BarrierWatch(log, reader).held_at(log.list())

    with Barrier(log, 0x500, "shop.a") as barrier:
        assert (held("shop.a"), held("shop.b"), held(None)) == (0x500, None, None)
        barrier.move(0x600)
        assert held("shop.a") == 0x600
    with Barrier(log, 0x500):
        assert (held("shop.a"), held(None)) == (0x500, 0x500)
    assert log.list().barriers == ()


def segment(number: int, *, after: int, last: int, is_open: bool) -> SegmentName:
    return SegmentName(number, 1, after, last, last, 1, is_open, 0)


def test_a_transaction_that_only_begins_in_a_large_segment_is_not_too_large(
    tmp_path: Path,
) -> None:
    """The segment holds others, which were delivered: no wait would free it, and more may come."""
    log = ChangeLog(str(tmp_path / "log"))
    log.set_reader("shop", Frontier(20, 20))
    whole = segment(1, after=10, last=20, is_open=True)
    part = segment(2, after=20, last=20, is_open=True)

    def kept(sizes: dict[SegmentName, int]) -> LogKeeper:
        listing = Listing(tuple(sizes), sizes)
        writer: Any = SimpleNamespace(listing=listing, total_bytes=listing.total_bytes)
        made = LogKeeper(FilledLog(log, writer), Limits(100, 3600.0), dict)
        made.look()
        return made

    assert not kept({whole: 150}).is_full()
    assert not kept({whole: 150, part: 60}).is_full()
    with pytest.raises(LogError, match="one transaction takes more room"):
        kept({whole: 150, part: 120}).is_full()
