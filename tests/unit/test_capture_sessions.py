"""The loop of every capture process: what it tries again, and what it does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.changelog.changelog import ChangeLog
from penstock.model.errors import PenstockError, PipelineBusy, SlotError, SourceUnavailable
from penstock.source.capture.sessions import NotYetError, run_sessions
from penstock.source.capture.stop import Stop


class Unpaused(Stop):
    """Notes pauses instead of making them."""

    def __init__(self) -> None:
        super().__init__(supervised=False)
        self.pauses: list[float] = []

    def wait(self, seconds: float) -> None:
        self.pauses.append(seconds)


class Sessions:
    """Each ends as it is told to."""

    def __init__(self, *ends: Exception | None) -> None:
        self._ends: Iterator[Exception | None] = iter(ends)
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        if (end := next(self._ends)) is not None:
            raise end


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    return ChangeLog(str(tmp_path / "log"))


def test_what_may_pass_is_reported_and_tried_again_with_longer_pauses(
    log: ChangeLog, capfd: pytest.CaptureFixture[str]
) -> None:
    stop, gone = Unpaused(), SourceUnavailable("the server is away", remedy="wait")
    sessions = Sessions(gone, gone, gone, None)
    run_sessions(log, stop, sessions, stands_by=False)
    assert sessions.count == 4
    assert len(stop.pauses) == 3
    report = log.capture_report()
    assert report is not None
    assert report["state"] == "reconnecting"
    assert "the server is away" in capfd.readouterr().err


def test_what_has_to_wait_is_not_told(log: ChangeLog, capfd: pytest.CaptureFixture[str]) -> None:
    stop = Unpaused()
    run_sessions(log, stop, Sessions(NotYetError(0.25), None), stands_by=False)
    assert stop.pauses == [0.25]
    assert capfd.readouterr().err == ""


def test_another_capture_is_waited_for_by_who_stands_by_alone(log: ChangeLog) -> None:
    busy = PipelineBusy("another one captures", remedy="")
    run_sessions(log, Unpaused(), (waiting := Sessions(busy, None)), stands_by=True)
    assert waiting.count == 2
    with pytest.raises(PipelineBusy):
        run_sessions(log, Unpaused(), Sessions(busy), stands_by=False)


def test_what_a_person_has_to_look_at_ends_it(log: ChangeLog) -> None:
    error: PenstockError = SlotError("the slot is lost", remedy="begin anew")
    with pytest.raises(SlotError):
        run_sessions(log, Unpaused(), Sessions(error), stands_by=True)


def test_no_session_begins_after_a_stop(log: ChangeLog) -> None:
    stop = Unpaused()
    stop._set()
    run_sessions(log, stop, (sessions := Sessions()), stands_by=False)
    assert sessions.count == 0
