"""Where one of several destinations begins."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.changelog.changelog import ChangeLog
from penstock.destination.memory import MemoryDestination, MemoryOptions
from penstock.model.errors import LogError
from penstock.model.lsn import Frontier
from penstock.model.source_identity import SourceIdentity
from penstock.model.table_state import Init
from penstock.pipeline.run import beginning as module
from penstock.pipeline.run.beginning import begin_all, beginning
from penstock.pipeline.run.context import RunContext
from penstock.source.contract import Subscription
from tests.run_context import run_context
from tests.unit import test_capture_session
from tests.unit.test_capture_session import FIRST, SECOND, THIRD, FedStream, capture

SUBSCRIPTION = Subscription(("p",), "u", "s", 0x1030, (), ())
SLOT = Frontier(0, 0x1030)
SOURCE = SourceIdentity("1", 1, "shop", "u")
NAME = "shop.lake"


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChangeLog:
    """It begins with the slot."""
    monkeypatch.setattr(test_capture_session, "START", SLOT)
    return ChangeLog(str(tmp_path / "log"))


def fill(log: ChangeLog) -> None:
    """With three transactions, each in a segment of its own."""
    for at in (FIRST, SECOND, THIRD):
        capture(log, FedStream(at))


def drop_first(log: ChangeLog) -> None:
    log.segments.delete(str(log.list().segments[0]))


def context(log: ChangeLog, *, replays: bool = False) -> RunContext:
    session: Any = SimpleNamespace(seen=lambda: SimpleNamespace(identity=SOURCE))
    made = run_context("shop", log.root.path, session=session, log=log)
    config = made.config.one_of("lake", ("lake", "more"), replays_log=replays)
    destination = MemoryDestination(MemoryOptions(), NAME)
    return RunContext(**{**vars(made), "config": config, "destination": destination})


def test_the_only_destination_begins_with_the_slot(log: ChangeLog) -> None:
    fill(log)
    assert beginning(run_context("shop", log=log), SUBSCRIPTION) == SLOT
    assert log.all_readers() == {}


def test_a_new_one_takes_its_place_at_the_logs_end(log: ChangeLog) -> None:
    fill(log)
    end = log.list().frontier
    assert beginning(context(log), SUBSCRIPTION) == end
    written = log.reader(NAME)
    assert written is not None
    assert (written.frontier, written.begin, written.source) == (end, end, SOURCE)


def test_before_anything_was_captured_it_begins_with_the_slot(tmp_path: Path) -> None:
    log = ChangeLog(str(tmp_path / "empty"))
    assert beginning(context(log), SUBSCRIPTION) == SLOT
    assert log.reader(NAME) is not None


def test_started_again_it_began_where_it_began(log: ChangeLog) -> None:
    fill(log)
    log.set_reader(NAME, THIRD, 0, None, FIRST, durable=True)
    assert beginning(context(log), SUBSCRIPTION) == FIRST
    log.set_reader(NAME, THIRD)
    assert beginning(context(log), SUBSCRIPTION) == SLOT


def test_one_whose_place_was_lost_does_not_begin_anew(log: ChangeLog) -> None:
    """What lies between would be missing: the log has to say so."""
    fill(log)
    lost = context(log)
    lost.store.update_table_state(1, Init())
    assert beginning(lost, SUBSCRIPTION) == SLOT
    assert log.reader(NAME) is None


def test_what_is_removed_meanwhile_is_not_its_beginning(
    log: ChangeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture(log, FedStream(FIRST))
    first = log.list().frontier
    assert first is not None

    def others_go_on(*_: object) -> None:
        """Capture has not noticed it yet, and removes what all others have passed."""
        if len(log.list().segments) < 3:
            for at in (SECOND, THIRD):
                capture(log, FedStream(at))
            while log.list().segments[0].after <= first.commit_lsn:
                drop_first(log)

    monkeypatch.setattr(module, "_let_capture_notice", others_go_on)
    assert beginning(context(log), SUBSCRIPTION) == log.list().frontier


def test_the_log_is_replayed_where_it_reaches_back(log: ChangeLog) -> None:
    fill(log)
    assert beginning(context(log, replays=True), SUBSCRIPTION) == SLOT
    written = log.reader(NAME)
    assert written is not None
    assert written.frontier == SLOT


def test_a_log_that_does_not_reach_back_is_refused(log: ChangeLog) -> None:
    fill(log)
    drop_first(log)
    with pytest.raises(LogError, match="no longer reaches back") as refused:
        beginning(context(log, replays=True), SUBSCRIPTION)
    assert "leave `from: log` out" in refused.value.remedy
    assert log.reader(NAME) is None, "nothing is kept for it"


def test_what_everybody_passed_long_ago_may_go_at_any_moment(
    log: ChangeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The grace period of the first segment is over, and capture has not looked at its readers
    since: it still goes, however long that period is.
    """
    fill(log)
    replaying = context(log, replays=True)
    assert replaying.config.change_log.grace == 60
    monkeypatch.setattr("time.sleep", lambda _: drop_first(log))
    with pytest.raises(LogError, match="no longer reaches back"):
        beginning(replaying, SUBSCRIPTION)
    assert log.reader(NAME) is None, "nothing is kept for it"


@pytest.mark.parametrize("replays", [True, False])
def test_one_that_was_killed_before_it_saw_what_the_log_has_looks_again(
    log: ChangeLog, replays: bool
) -> None:
    fill(log)
    log.set_reader(NAME, SLOT, 0, SOURCE, SLOT, durable=True)
    assert beginning(context(log), SUBSCRIPTION) == SLOT
    drop_first(log)
    killed = context(log, replays=replays)
    if replays:
        with pytest.raises(LogError, match="no longer reaches back"):
            beginning(killed, SUBSCRIPTION)
        assert log.reader(NAME) is None
    else:
        assert beginning(killed, SUBSCRIPTION) == log.list().frontier


def test_one_that_was_delivered_to_does_not_begin_anew(log: ChangeLog) -> None:
    fill(log)
    log.set_reader(NAME, SLOT, 0, SOURCE, SLOT, durable=True)
    drop_first(log)
    delivered = context(log)
    delivered.store.update_table_state(1, Init())
    assert beginning(delivered, SUBSCRIPTION) == SLOT, "the log says what it lacks"


def test_who_makes_the_subscription_makes_room_for_all(log: ChangeLog) -> None:
    """One that starts a minute later gets what was written in that minute, also without a copy."""
    first = context(log)
    assert beginning(first, replace(SUBSCRIPTION, is_new=True)) == SLOT
    assert log.all_readers().keys() == {"shop.lake", "shop.more"}
    fill(log)
    more = first.config.one_of("more", ("lake", "more"), replays_log=False)
    other = RunContext(**{**vars(first), "config": more})
    assert beginning(other, SUBSCRIPTION) == SLOT


def test_so_does_who_finds_it_made_and_the_log_still_empty(log: ChangeLog) -> None:
    """Whoever made it may have died just after that."""
    first = context(log)
    begin_all(first.config, log, SUBSCRIPTION)
    assert log.all_readers().keys() == {"shop.lake", "shop.more"}
    fill(log)
    third = first.config.one_of("third", ("lake", "more", "third"), replays_log=False)
    begin_all(third, log, SUBSCRIPTION)
    assert log.reader("shop.third") is None, "it takes its place itself"
