"""What capture is told of a destination, and what is written of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from penstock.changelog.changelog import ChangeLog, ReaderState
from penstock.changelog.reader_record import ReaderRecord
from penstock.changelog.storage.folder import FolderStorage
from penstock.changelog.storage.pace import OBJECTS
from penstock.model.errors import DestinationUnavailable, LogUnavailable
from penstock.model.lsn import Frontier
from penstock.source.capture.link import Link, Reports, Teller, from_line

FIRST, SECOND, THIRD = Frontier(1, 2), Frontier(3, 4), Frontier(5, 6)


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    return ChangeLog(str(tmp_path / "log"))


def written(log: ChangeLog) -> Frontier | None:
    state = log.reader("shop")
    return state.frontier if state else None


def test_capture_hears_at_once_and_the_storage_at_its_pace(
    log: ChangeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FolderStorage, "pace", OBJECTS)
    record, heard = ReaderRecord(log, "shop"), list[Frontier]()
    record.say(FIRST, 0, None, durable=False)
    record.listen(lambda _, state: heard.append(state.frontier))
    record.say(SECOND, 0, None, durable=False)
    record.keep()
    assert heard == [FIRST, SECOND]
    assert written(log) == FIRST
    record._next_write = 0
    record.keep()
    assert written(log) == SECOND
    # Nobody else knows it: it does not wait.
    record.say(THIRD, 0, None, durable=True)
    assert written(log) == THIRD
    record.say(SECOND, 0, None, durable=False)
    record.close()
    assert written(log) == SECOND


def test_what_another_driver_has_said_since_is_not_taken_back(log: ChangeLog) -> None:
    """It had lost its lock, and delivered on; what it delivered is gone from the log by now."""
    log.set_reader("shop", FIRST, durable=True)
    ours = ReaderRecord(log, "shop")
    ours.look()
    log.set_reader("shop", THIRD, durable=True)
    assert ours.is_overtaken(SECOND)
    with pytest.raises(DestinationUnavailable, match=r"another driver of shop .* meanwhile"):
        ours.say(SECOND, 0, None, durable=True)
    assert written(log) == THIRD
    ours.look()
    assert not ours.is_overtaken(SECOND)
    # One that begins further back, for a table that was given up, may say so.
    ours.say(SECOND, 0, None, durable=True)
    ours.say(FIRST, 0, None, durable=True)
    assert written(log) == FIRST


def test_a_storage_that_is_away_holds_up_only_what_nobody_else_knows(
    log: ChangeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = ReaderRecord(log, "shop")

    def away(*_: object, **__: object) -> None:
        raise LogUnavailable("away")

    with monkeypatch.context() as patched:
        patched.setattr(FolderStorage, "write", away)
        record.say(FIRST, 0, None, durable=False)
        with pytest.raises(LogUnavailable):
            record.say(FIRST, 0, None, durable=True)
    record.keep()
    assert written(log) == FIRST


def test_words_between_capture_and_run() -> None:
    reading, writing = os.pipe()
    told = {"shop": ReaderState(FIRST)}
    teller = Teller(os.fdopen(writing, "wb"), told)
    with os.fdopen(reading, "rb") as lines:
        assert from_line(lines.readline()) == ("shop", ReaderState(FIRST))
        state = ReaderState(SECOND, 7, begin=FIRST, stream=THIRD)
        teller.tell("shop", state)
        assert from_line(lines.readline()) == ("shop", state)
        teller.close()
        assert lines.readline() == b"", "capture stops at the end of what it is told"


def test_a_capture_that_does_not_listen_holds_up_nobody() -> None:
    reading, writing = os.pipe()
    teller = Teller(os.fdopen(writing, "wb"), {})
    for number in range(20_000):
        teller.tell("shop", ReaderState(Frontier(number, number)))
    # The newest waits; those before it need not be told.
    assert len(teller._waiting) <= 1
    os.close(reading)
    teller.close()


def test_segments_and_reports_come_over_one_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    segments: list[tuple[str, int]] = []
    link = Link(supervised=True)
    link.published("a", 5)
    link.say({"state": "streaming"})
    reading, writing = os.pipe()
    os.write(writing, capfd.readouterr().out.encode())
    os.close(writing)
    reports = Reports(os.fdopen(reading, "rb"), lambda name, size: segments.append((name, size)))
    reports.wait()
    assert segments == [("a", 5)]
    assert reports.last == {"state": "streaming"}
    Link().say({"nobody": "listens"})
    assert capfd.readouterr().out == ""
