"""What a session reads and confirms, with a replication stream that a test feeds."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import Future
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest

from penstock.changelog.changelog import ChangeLog
from penstock.changelog.storage.folder import FolderStorage
from penstock.changelog.storage.pace import FOLDER, OBJECTS
from penstock.changelog.writer import LogWriter
from penstock.model.errors import Fenced, SourceUnavailable
from penstock.model.lsn import Frontier
from penstock.pgoutput.messages import Begin, Commit, Insert
from penstock.source.capture import keeper
from penstock.source.capture.keeper import FilledLog
from penstock.source.postgres.capture import session
from penstock.source.postgres.capture.assemble import Assembler
from penstock.source.postgres.capture.publisher import Publisher
from penstock.source.postgres.capture.session import CaptureSession, CaptureSettings
from penstock.spark.typed_rows import find_table
from tests.pgoutput_bytes import encode, xlog_data
from tests.stream_model import VERSIONS, describe

START = Frontier(0x1000, 0x1030)
FIRST, SECOND = Frontier(0x2000, 0x2030), Frontier(0x3000, 0x3030)
THIRD = Frontier(0x4000, 0x4030)


class FedStream:
    """A transaction each time that it is read, and then nothing."""

    reply_requested = False

    def __init__(self, *transactions: Frontier) -> None:
        self.waiting = list(transactions)
        self.wal_end = self.waiting[-1].end_lsn + 0x100
        self.confirmed: list[int] = []

    def wait(self, _seconds: float, _extra: int | None) -> bool:
        return bool(self.waiting)

    def receive(self) -> list[memoryview]:
        at, table = self.waiting.pop(0), VERSIONS[0][0]
        messages = (
            Begin(at.commit_lsn, 5, 7),
            table,
            Insert(table.oid, (b"1", b"x")),
            Commit(at.commit_lsn, at.end_lsn, 5),
        )
        return [memoryview(xlog_data(encode(message))) for message in messages]

    def send_status(self, *, received: int, confirmed: int, ask: bool) -> None:
        self.confirmed.append(confirmed)


class SilentStream(FedStream):
    """Says nothing, unless it is asked and ``answers``."""

    def __init__(self, *, answers: bool) -> None:
        super().__init__(FIRST)
        self.waiting.clear()
        self._answers = answers
        self._due = False
        self.asked = 0

    def wait(self, _seconds: float, _extra: int | None) -> bool:
        time.sleep(0.01)
        return self._due

    def receive(self) -> list[memoryview]:
        self._due = False
        return []

    def send_status(self, *, received: int, confirmed: int, ask: bool) -> None:
        self.asked += ask
        self._due = self._due or (ask and self._answers)


def capture(
    log: ChangeLog, fed: FedStream, *, turns: int = 1, confirm_log: bool = False, **limits: float
) -> None:
    """A session of so many turns, which publishes nothing before it stops, unless ``age`` says
    otherwise.
    """
    writer = LogWriter(log)
    start = writer.frontier or START
    writer.start_at(start)
    stream: Any = fed
    settings = CaptureSettings(
        confirm_log=confirm_log,
        segment_bytes=2**20,
        segment_age=limits.get("age", 3600),
        max_bytes=int(limits.get("max_bytes", 2**30)),
        grace=0,
        silence=limits.get("silence", 60),
    )
    session = CaptureSession(
        stream,
        FilledLog(log, writer),
        Assembler(start, describe),
        settings,
        START.end_lsn,
        lambda: None,
    )
    session.run(chain(repeat(False, turns), [True]).__next__)


@pytest.fixture
def log(tmp_path: Path) -> ChangeLog:
    log = ChangeLog(str(tmp_path))
    log.set_reader("shop", START)
    return log


@pytest.mark.parametrize(("confirm_log", "in_the_end"), [(True, FIRST), (False, START)])
def test_what_is_only_in_memory_is_not_confirmed(
    log: ChangeLog, confirm_log: bool, in_the_end: Frontier
) -> None:
    stream = FedStream(FIRST)
    capture(log, stream, confirm_log=confirm_log)
    received, *_, last = stream.confirmed
    assert received == START.end_lsn, "it was received, and no segment holds it"
    assert log.list().frontier == FIRST
    assert last == in_the_end.end_lsn


def test_what_was_written_after_a_takeover_is_not_confirmed(
    log: ChangeLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new writer has not seen it, and goes on before it: it does not count."""
    write = FolderStorage.write

    def take_over_first(storage: FolderStorage, name: str, data: Any, *, durable: bool) -> None:
        if name.endswith(".arrow"):
            monkeypatch.setattr(FolderStorage, "write", write)
            assert LogWriter(log).frontier is None
        write(storage, name, data, durable=durable)

    monkeypatch.setattr(FolderStorage, "write", take_over_first)
    stream = FedStream(FIRST)
    with pytest.raises(Fenced):
        capture(log, stream, turns=3, confirm_log=True)
    assert set(stream.confirmed) == {START.end_lsn}


def test_who_was_replaced_leaves_the_tables_to_who_came(log: ChangeLog) -> None:
    """It was frozen, say, and what it still has in memory was a table's definition once."""

    class Overtaken(FedStream):
        def receive(self) -> list[memoryview]:
            LogWriter(log)
            log.set_tables({})
            return super().receive()

    with pytest.raises(Fenced):
        capture(log, Overtaken(FIRST))
    assert not log.tables()


def test_a_table_that_was_made_anew_comes_behind_the_one_of_its_name(log: ChangeLog) -> None:
    """So does one that was renamed to the name of another."""
    now = describe(VERSIONS[0][0])
    dropped = replace(now, oid=1, columns=now.columns[:1])
    log.set_tables({now.oid: describe(VERSIONS[0][2]), dropped.oid: dropped})
    capture(log, FedStream(FIRST))
    assert log.tables() == (dropped, now)
    assert find_table(log, now.qualified_name) == now


def test_a_commit_that_comes_alone_is_published(log: ChangeLog) -> None:
    """Rows of a transaction came, then much that is not published: readers had to wait for the next
    idle advance, half a minute in a bucket.
    """

    class InTwo(FedStream):
        held: tuple[memoryview, ...] = ()

        def wait(self, _seconds: float, _extra: int | None) -> bool:
            time.sleep(0.05)
            return bool(self.waiting or self.held)

        def receive(self) -> list[memoryview]:
            if self.held:
                came, self.held = list(self.held), ()
                return came
            *rows, commit = super().receive()
            self.held = (commit,)
            return rows

    capture(log, InTwo(FIRST), turns=6, age=0)
    first, second = log.list().segments
    assert (first.is_open, second.rows) == (True, 0)
    assert log.list().frontier == FIRST


def test_what_is_published_just_when_nobody_waits_any_longer_is_no_error(log: ChangeLog) -> None:
    class EndsWithTheWait(Future[None]):
        def result(self, timeout: float | None = None) -> None:
            if not self.done():
                self.set_result(None)
                raise TimeoutError
            super().result(timeout)

    publisher = Publisher(Assembler(START, describe), LogWriter(log), lambda _: None, print)
    publisher._under_way = EndsWithTheWait()
    publisher.wait(0.01)
    publisher._under_way.set_result(None)
    publisher.wait(0.01)
    assert not publisher.busy
    publisher.close()


class AskingStream(FedStream):
    """Brings something, and wants an answer all the time."""

    reply_requested = True

    def __init__(self) -> None:
        super().__init__(FIRST)
        self.has_answer = threading.Event()

    def wait(self, seconds: float, extra: int | None) -> bool:
        time.sleep(min(seconds, 0.01))
        return super().wait(seconds, extra)

    def send_status(self, *, received: int, confirmed: int, ask: bool) -> None:
        super().send_status(received=received, confirmed=confirmed, ask=ask)
        if not self.waiting and len(self.confirmed) > 20:
            self.has_answer.set()


def test_a_slow_store_holds_up_no_answer(log: ChangeLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is answered while a segment is written."""
    stream, write = AskingStream(), FolderStorage.write

    def slow(storage: FolderStorage, name: str, data: Any, *, durable: bool) -> None:
        if name.endswith(".arrow"):
            assert stream.has_answer.wait(30), "nothing was answered meanwhile"
            monkeypatch.setattr(FolderStorage, "write", write)
        write(storage, name, data, durable=durable)

    monkeypatch.setattr(FolderStorage, "write", slow)
    capture(log, stream, turns=60, age=0.01)
    assert stream.has_answer.is_set()
    assert log.list().frontier == FIRST


def test_a_full_log_takes_nothing_before_its_readers_go_on(log: ChangeLog) -> None:
    capture(log, FedStream(FIRST))
    stream = FedStream(SECOND, THIRD)
    capture(log, stream, turns=3, max_bytes=1)
    assert stream.waiting == [SECOND, THIRD]
    log.set_reader("shop", FIRST)
    capture(log, stream, max_bytes=1)
    assert stream.waiting == [THIRD]


def test_a_server_that_is_silent_is_asked_and_then_given_up(log: ChangeLog) -> None:
    stream, began = SilentStream(answers=False), time.monotonic()
    with pytest.raises(SourceUnavailable, match="said nothing"):
        capture(log, stream, turns=1000, silence=0.8)
    assert stream.asked == 1
    assert time.monotonic() - began >= 0.8
    assert (log.capture_report() or {})["silent_seconds"] >= 0


def test_one_that_answers_may_be_silent_for_ever(log: ChangeLog) -> None:
    stream = SilentStream(answers=True)
    capture(log, stream, turns=150, silence=0.5)
    assert stream.asked > 1


def test_a_full_log_does_not_listen_and_takes_nobody_for_silent(log: ChangeLog) -> None:
    capture(log, FedStream(FIRST))
    stream = SilentStream(answers=False)
    capture(log, stream, turns=10, silence=0.5, max_bytes=1)
    assert not stream.asked


class OneTransaction(FedStream):
    """One transaction, perhaps without its Commit. Looks all the time what the log shows."""

    def __init__(self, *, ends: bool = True, row_bytes: int = 1) -> None:
        super().__init__(FIRST)
        self._ends = ends
        self._value = b"x" * row_bytes

    def receive(self) -> list[memoryview]:
        begin, relation, _, commit = super().receive()
        row = Insert(VERSIONS[0][0].oid, (b"1", self._value))
        inserted = memoryview(xlog_data(encode(row)))
        return [begin, relation, inserted, *([commit] if self._ends else [])]

    def watch(self, log: ChangeLog) -> None:
        self._log, self.was_published = log, False

    def wait(self, seconds: float, extra: int | None) -> bool:
        time.sleep(min(seconds, 0.01))
        self.was_published |= self._log.list().frontier == FIRST
        return super().wait(seconds, extra)


# Nothing is due by its age in these tests.
_AGE = 3600.0


@pytest.mark.parametrize(
    ("stream", "is_published"),
    [
        (OneTransaction(), True),
        (OneTransaction(ends=False), False),
        (OneTransaction(row_bytes=100_000), False),
    ],
    ids=["quiet", "inside of a transaction", "busy"],
)
def test_what_a_quiet_line_brings_is_published_at_once(
    log: ChangeLog, stream: OneTransaction, is_published: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FolderStorage, "pace", replace(FOLDER, quiet=0.0))
    stream.watch(log)
    capture(log, stream, turns=60, age=_AGE)
    assert stream.was_published is is_published


def test_segments_of_a_quiet_line_do_not_follow_too_closely(log: ChangeLog) -> None:
    """A quarter of their age lies between two."""
    capture(log, FedStream(FIRST, SECOND, THIRD), turns=20, age=_AGE)
    assert len(log.list().segments) == 1


class Trickle(FedStream):
    """One transaction after another, whose reader follows or is away."""

    def __init__(self, log: ChangeLog, *, followed: bool) -> None:
        super().__init__(FIRST)
        self._log, self._followed = log, followed

    def wait(self, _seconds: float, _extra: int | None) -> bool:
        time.sleep(0.002)
        if self._followed:
            self._log.set_reader("shop", self._log.list().frontier or START)
        return True

    def receive(self) -> list[memoryview]:
        (at,) = self.waiting
        self.waiting.append(Frontier(at.commit_lsn + 0x100, at.end_lsn + 0x100))
        return super().receive()


@pytest.mark.parametrize("followed", [True, False])
def test_a_log_that_nobody_follows_gets_no_small_segments(
    log: ChangeLog, followed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its reader may be away for days."""
    monkeypatch.setattr(FolderStorage, "pace", replace(FOLDER, quiet=0.0))
    monkeypatch.setattr(keeper, "_TURN_SECONDS", 0.001)
    close = session._CLOSE_SEGMENTS
    capture(log, Trickle(log, followed=followed), turns=10 * close, age=_AGE)
    assert (log.list().segments[-1].sequence > 2 * close) is followed


def test_on_object_storage_each_segment_has_its_age() -> None:
    assert OBJECTS.quiet == math.inf
