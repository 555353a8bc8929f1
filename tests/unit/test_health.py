"""What /health and /ready say of each thing that can be gone, stuck or full, and when."""

from __future__ import annotations

import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.destination.discard import DiscardDestination, DiscardOptions
from penstock.destination.protocols import CountsByItself
from penstock.metrics.health import LASTING_SECONDS, SLOW_SECONDS, STALLED_SECONDS, Health
from penstock.model.errors import DestinationUnavailable, Fenced, SourceUnavailable
from penstock.pipeline.run import destination_watch
from penstock.pipeline.run.context import RunContext
from penstock.pipeline.run.destination_watch import DestinationWatch
from penstock.pipeline.run.supervisor import Supervisor
from penstock.pipeline.run.watched import Watched
from tests.run_context import Nobody, run_context

TOLD_SECONDS = 90.0
"""However something is wrong, both tell of it by then."""


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Seen:
    """A pipeline that is well until a test says otherwise, looked at every second."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.health = Health(self.clock)
        self.health.streams()
        self.health.tables(unsettled=0, errored=0)
        self.report: dict[str, Any] = {"state": "streaming"}
        self.reports = True
        self.behind = False
        self.turns = True

    def look(self) -> None:
        self.clock.now += 1
        if self.reports:
            self.report["at"] = self.clock.now
        if self.turns:
            self.health.captures(self.report)
            self.health.turned(has_work=self.behind, is_behind=self.behind)

    def until(self, seconds: float) -> None:
        for _ in range(int(seconds)):
            self.look()

    def ok(self) -> tuple[bool, bool]:
        return self.health.ready().ok, self.health.health().ok

    def expect(self, text: str, *, at_once: bool = True) -> None:
        """Ready tells at once, health when it has lasted, both in time; and not for ever."""
        assert self.health.health().ok
        self.look()
        if at_once:
            assert text in str(self.health.ready().body["reasons"])
        assert self.health.health().ok, "it may pass"
        self.until(TOLD_SECONDS - 1)
        assert text in str(self.health.ready().body["reasons"])
        assert text in str(self.health.health().body["reasons"])


@pytest.fixture
def seen() -> Seen:
    seen = Seen()
    seen.until(200)
    assert seen.ok() == (True, True)
    return seen


def test_the_source_is_gone(seen: Seen) -> None:
    seen.health.trouble("source", "the source does not answer")
    seen.expect("the source does not answer")
    seen.health.trouble("source", None)
    assert seen.ok() == (True, True)


def test_the_source_leaves_a_question_unanswered(seen: Seen) -> None:
    seen.turns = False
    with seen.health.asking("the source"):
        seen.expect("the source has not answered", at_once=False)
    seen.turns = True
    seen.look()
    assert seen.ok() == (True, True)


def test_the_walsender_is_gone(seen: Seen) -> None:
    seen.report = {"state": "reconnecting", "error": "the server ended the stream"}
    seen.expect("capture does not stream yet: the server ended the stream")


def test_the_walsender_says_nothing(seen: Seen) -> None:
    for silent in range(int(TOLD_SECONDS)):
        seen.report["silent_seconds"] = float(silent)
        seen.look()
        if silent == 40:
            assert seen.ok() == (True, True), "it has just been asked"
    assert "the source has sent nothing to capture for 89 s" in str(seen.health.health().body)
    assert not seen.health.ready().ok


def test_capture_hangs(seen: Seen) -> None:
    seen.reports = False
    seen.until(TOLD_SECONDS)
    assert "capture has not reported for" in str(seen.health.health().body)
    assert not seen.health.ready().ok


def test_the_destination_fails_what_it_is_given(seen: Seen) -> None:
    seen.behind = True
    seen.health.delivery_failed("the destination was lost")
    seen.expect("the destination was lost")
    # That it can be asked again is no delivery.
    seen.look()
    assert seen.ok() == (False, False)
    seen.health.moved()
    assert seen.ok() == (True, True)


def test_spark_does_not_answer(seen: Seen) -> None:
    seen.turns = False
    with seen.health.query(), seen.health.asking("Spark"):
        seen.expect("Spark has not answered", at_once=False)


def test_spark_begins_nothing(seen: Seen) -> None:
    seen.behind = True
    with seen.health.query():
        seen.until(SLOW_SECONDS)
        assert seen.health.health().ok
        seen.until(TOLD_SECONDS - SLOW_SECONDS)
        assert "Spark has begun no batch for" in str(seen.health.health().body)
        assert not seen.health.ready().ok


def test_a_batch_may_take_long_and_is_told_all_the_same(seen: Seen) -> None:
    """Who restarts a pipeline for a slow batch restarts it for ever."""
    seen.behind = True
    with seen.health.query():
        seen.health.batch(+1)
        seen.until(TOLD_SECONDS)
        assert seen.ok() == (False, True)
        assert "nothing was delivered for" in str(seen.health.ready().body)
        seen.until(STALLED_SECONDS)
        assert not seen.health.health().ok
        seen.health.batch(-1)
        seen.health.moved()
        assert seen.ok() == (True, True)


def test_tasks_of_a_batch_hang(seen: Seen) -> None:
    seen.behind = True
    with seen.health.query():
        seen.health.batch(+1)
        for used in range(int(TOLD_SECONDS)):
            seen.health.tasks_worked(used)
            seen.look()
        assert seen.health.health().ok, "they are at work"
        seen.until(SLOW_SECONDS - 5)
        assert seen.health.health().ok
        for _ in range(int(TOLD_SECONDS - SLOW_SECONDS)):
            seen.health.tasks_worked(int(TOLD_SECONDS) - 1)
            seen.look()
        assert "have used no processor time for" in str(seen.health.health().body)
        seen.health.tasks_worked(None)
        seen.look()
        assert seen.health.health().ok, "the batch is written, and is being committed"


def test_the_log_is_full(seen: Seen) -> None:
    seen.behind = True
    seen.report["state"] = "paused"
    seen.expect("the change log is full")


def test_a_full_log_that_is_being_read_is_a_backlog(seen: Seen) -> None:
    seen.behind = True
    seen.report["state"] = "paused"
    for _ in range(20):
        seen.until(5)
        seen.health.moved()
    assert seen.ok() == (False, True)


def test_a_trouble_that_passes_makes_nobody_restart_anything(seen: Seen) -> None:
    seen.health.trouble("source", "the source does not answer")
    seen.until(LASTING_SECONDS - 1)
    assert seen.health.health().ok
    seen.health.trouble("source", None)
    seen.until(10)
    seen.health.trouble("source", "the source does not answer")
    seen.until(LASTING_SECONDS - 1)
    assert seen.health.health().ok


# -- who looks -------------------------------------------------------------------------------------


class Session:
    away = False

    def position(self) -> int:
        if self.away:
            raise SourceUnavailable("no connection")
        return 100


class Capture:
    def report(self) -> dict[str, Any]:
        return {"state": "streaming", "at": 1.0}


class Engine:
    batch_work = None
    lacks_executors = False


class Tables:
    are_settled = True
    note_count = 0


@pytest.fixture
def context(tmp_path: Path) -> RunContext:
    return run_context("shop", tmp_path, session=Session(), engine=Engine())


def reasons(context: RunContext) -> str:
    return str(context.metrics.health.ready().body["reasons"])


class EndedBeside(DiscardDestination, CountsByItself):
    def count_in(self, registry: object) -> None: ...

    def check_beside(self) -> None:
        raise Fenced("another process delivers")


def test_what_ended_beside_the_batches_ends_the_run_at_once(
    context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though nothing is committed at the source, and no batch would notice."""
    monkeypatch.setattr(Session, "keep", lambda _: None, raising=False)
    nobody: Any = Nobody()
    watched: Any = SimpleNamespace(look=lambda: None)
    destination = EndedBeside(DiscardOptions(), "shop")
    supervisor = Supervisor(
        replace(context, destination=destination), nobody, nobody, None, watched, lambda _: None
    )
    with pytest.raises(Fenced):
        supervisor.turn(lambda: False)


def test_the_driver_looks_at_source_and_disk(
    context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables: Any = Tables()
    capture: Any = Capture()

    def look() -> str:
        Watched(context, capture, tables).look()
        return reasons(context)

    assert "source" not in look()
    monkeypatch.setattr(Session, "away", True)
    assert "the source does not answer: no connection" in look()
    monkeypatch.setattr(Session, "away", False)
    assert "source" not in look()
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(4096))
    assert "4096 bytes are free" in look()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(2**40))
    assert "bytes are free" not in look()
    monkeypatch.setattr(Engine, "lacks_executors", True)
    assert "Spark has no executor for the tasks of a batch" in look()
    monkeypatch.setattr(Engine, "lacks_executors", False)
    assert "executor" not in look()


def test_a_destination_that_nothing_is_delivered_to_is_asked(
    context: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def gone(_: DiscardDestination) -> tuple[str, ...]:
        asked.append(1)
        raise DestinationUnavailable("nothing listens there")

    check = DiscardDestination.check
    monkeypatch.setattr(DiscardDestination, "check", gone)
    watch = DestinationWatch(context)
    watch.look()
    assert not asked, "it has just begun"
    monkeypatch.setattr(destination_watch, "_LOOK_SECONDS", 0.0)
    watch.look()
    assert "the destination does not answer: nothing listens there" in reasons(context)
    monkeypatch.setattr(DiscardDestination, "check", check)
    watch.look()
    assert "destination" not in reasons(context)
