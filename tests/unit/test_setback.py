"""A destination that says less than it has said before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.changelog.changelog import ChangeLog, LogIdentity
from penstock.changelog.writer import LogWriter
from penstock.destination.memory import MemoryDestination, MemoryOptions, forget
from penstock.metrics.catalogue import SETBACKS
from penstock.metrics.pipeline_metrics import Metrics
from penstock.metrics.written import JobResult
from penstock.model.errors import (
    DestinationError,
    IdentityChanged,
    SourceUnavailable,
    StoreError,
)
from penstock.model.lsn import Frontier
from penstock.model.source_identity import SeenSource, SourceIdentity
from penstock.model.table_state import Init, Ready
from penstock.model.watermarks import Watermarks
from penstock.pipeline.run import batch_committer
from penstock.pipeline.run.batch_committer import BatchCommitter
from penstock.pipeline.tables.registry import TableRegistry
from penstock.source.copy_plan import CopyPlan
from penstock.source.postgres.capture.assemble import Assembler
from penstock.store import MemoryStore
from tests.run_context import run_context
from tests.stream_model import describe
from tests.unit.test_copy_manager import TABLE

BEGIN, FIRST, SECOND = Frontier(0, 8), Frontier(0x100, 0x108), Frontier(0x200, 0x208)
IDENTITY = SourceIdentity("7001", 1, "shop", "uuid")


class Run:
    """A pipeline with one table, which was copied under a snapshot of ``copied``."""

    def __init__(self, folder: Path, copied: int) -> None:
        self.metrics = Metrics("shop")
        self.store = MemoryStore("shop")
        self.store.open()
        self.tables = TableRegistry(self.store, merges=True, copies=True)
        self.tables.enrol([TABLE], 0)
        self.store.start_copies({TABLE.oid: CopyPlan(TABLE.oid, ("id",), None, ())}, copied)
        self.store.update_table_state(TABLE.oid, Ready())
        self.log = ChangeLog(str(folder))
        self.seen = SeenSource(IDENTITY, 0x500)
        self.session = SimpleNamespace(seen=lambda: self.seen)
        forget("shop")
        self.destination = MemoryDestination(MemoryOptions(), "shop")
        self.destination.open()
        self.committer = self.started()

    def started(self) -> BatchCommitter:
        parts: dict[str, Any] = {
            "destination": self.destination,
            "metrics": self.metrics,
            "store": self.store,
            "session": self.session,
        }
        return BatchCommitter(run_context("shop", self.log.root.path, **parts))

    def resume(self) -> Watermarks:
        self.committer.resume(BEGIN, self.tables)
        return self.committer.standing

    def deliver(self, frontier: Frontier) -> None:
        self.committer(JobResult(), frontier)

    def log_from(self, start: Frontier, end: Frontier) -> None:
        """Let the log begin and end here."""
        writer = LogWriter(self.log)
        writer.start_at(start)
        writer.publish(Assembler(start, describe).cut().segment, end, is_open=False)

    def lose(self, monkeypatch: pytest.MonkeyPatch, held: Watermarks | None) -> None:
        monkeypatch.setattr(MemoryDestination, "committed", lambda _self: held)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    run = Run(tmp_path, copied=0x50)
    run.resume()
    run.deliver(FIRST)
    return run


def test_what_is_committed_says_of_which_source_it_is(run: Run) -> None:
    assert run.destination.committed() == Watermarks(FIRST, source=IDENTITY)
    reader = run.log.reader("shop")
    assert reader is not None
    assert (reader.frontier, reader.source) == (FIRST, IDENTITY)


@pytest.mark.parametrize("restarted", [True, False])
def test_it_goes_on_from_what_the_destination_has(
    run: Run, monkeypatch: pytest.MonkeyPatch, *, restarted: bool
) -> None:
    run.deliver(SECOND)
    run.lose(monkeypatch, Watermarks(FIRST, source=IDENTITY))
    if restarted:
        run.committer = run.started()
    assert run.resume().frontier == FIRST
    assert run.metrics.registry.total(SETBACKS) == 1
    assert run.tables.unprepared == {TABLE.oid}
    assert run.store.get_table_state(TABLE.oid) == Ready(), "its rows had come before that"
    reader = run.log.reader("shop")
    assert reader is not None
    assert reader.frontier == FIRST, "the log keeps what comes again"
    # That is told once.
    run.resume()
    assert run.metrics.registry.total(SETBACKS) == 1


@pytest.mark.parametrize("held", [None, Watermarks(FIRST, {TABLE.oid: Frontier(0x4F, 0x50)})])
def test_copied_rows_that_may_be_lost_are_copied_anew(
    run: Run, monkeypatch: pytest.MonkeyPatch, held: Watermarks | None
) -> None:
    run.deliver(SECOND)
    run.lose(monkeypatch, held)
    run.resume()
    assert run.store.get_table_state(TABLE.oid) == Init()


def test_what_neither_log_nor_slot_has_is_refused(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.deliver(SECOND)
    run.log_from(SECOND, Frontier(0x300, 0x308))
    run.lose(monkeypatch, Watermarks(FIRST, source=IDENTITY))
    with pytest.raises(DestinationError, match=r"went back: .*0/200.*0/100.* no longer has"):
        run.resume()
    reader = run.log.reader("shop")
    assert reader is not None
    assert reader.frontier == SECOND, "who asks again is told again"


def test_a_commit_whose_answer_was_lost_is_no_setback(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lose(*_: object) -> None:
        raise DestinationError("lost")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryDestination, "commit", lose)
        with pytest.raises(DestinationError):
            run.deliver(SECOND)
    run.resume()
    assert run.metrics.registry.total(SETBACKS) == 0


def test_a_source_that_was_connected_anew_is_looked_at_once(run: Run) -> None:
    run.deliver(SECOND)
    assert run.committer.heed_source()
    # It was seen before that was written.
    run.seen = SeenSource(IDENTITY, 0x208)
    assert run.committer.heed_source()
    run.deliver(Frontier(0x300, 0x308))
    assert run.committer.heed_source()
    run.seen = SeenSource(IDENTITY, 0x307)
    with pytest.raises(IdentityChanged, match="went back"):
        run.committer.heed_source()


def test_a_promoted_source_is_taken_up_with_the_next_commit(run: Run) -> None:
    promoted = replace(IDENTITY, timeline=2)
    run.seen = SeenSource(promoted, 0x500, {1: FIRST.end_lsn})
    assert run.committer.heed_source()
    run.deliver(SECOND)
    assert run.destination.committed() == Watermarks(SECOND, source=promoted)
    run.seen = SeenSource(replace(IDENTITY, timeline=3), 0x500, {2: 0x200, 1: FIRST.end_lsn})
    with pytest.raises(IdentityChanged, match="left timeline 2"):
        run.committer.heed_source()


def test_what_a_promoted_source_never_had_is_not_delivered_from_the_log(run: Run) -> None:
    run.log_from(FIRST, SECOND)
    run.seen = SeenSource(replace(IDENTITY, timeline=2), 0x500, {1: FIRST.end_lsn})
    with pytest.raises(IdentityChanged, match=r"The change log in .* stands at 0/208"):
        run.committer.heed_source()


def test_capture_may_know_of_a_promotion_first(run: Run) -> None:
    """What it has written since is of the later timeline, and was delivered before the driver's own
    session was connected anew.
    """
    run.log.claim_identity(LogIdentity("7001", 1, "shop", "slot"))
    run.log_from(FIRST, SECOND)
    run.committer.heed_writer(run.log.list())
    run.deliver(SECOND)
    assert run.destination.committed() == Watermarks(SECOND, source=IDENTITY)
    left, third = {1: SECOND.end_lsn}, Frontier(0x300, 0x308)
    run.log.claim_identity(LogIdentity("7001", 2, "shop", "slot"), left)
    run.log_from(SECOND, third)
    promoted = replace(IDENTITY, timeline=2)
    # The driver has been connected anew, and not yet taken anything of that.
    run.seen = SeenSource(promoted, 0x500, left)
    run.committer = run.started()
    assert run.resume() == Watermarks(SECOND, source=promoted)
    # It is connected anew only after it has.
    run.seen = SeenSource(IDENTITY, 0x500)
    run.committer = run.started()
    run.resume()
    run.committer.heed_writer(run.log.list())
    run.deliver(third)
    assert run.destination.committed() == Watermarks(third, source=promoted)
    reader = run.log.reader("shop")
    assert reader is not None
    assert reader.source == promoted
    run.resume()
    assert run.committer.standing.source == promoted
    run.seen = SeenSource(promoted, 0x500, left)
    assert run.committer.heed_source()


def test_a_source_that_does_not_answer_is_asked_again(run: Run) -> None:
    def away() -> SeenSource:
        raise SourceUnavailable("away")

    run.session.seen = away
    assert not run.committer.heed_source()
    # The destination still gets what the log has.
    assert run.resume().source == IDENTITY


def test_what_the_destination_knows_of_the_source_outlives_a_start_without_it(run: Run) -> None:
    """Forgotten, it would be that of whatever server answers next."""

    def away() -> SeenSource:
        raise SourceUnavailable("away")

    run.committer, answers = run.started(), run.session.seen
    run.session.seen = away
    assert run.resume().source == IDENTITY
    run.deliver(SECOND)
    assert run.destination.committed() == Watermarks(SECOND, source=IDENTITY)
    run.session.seen = answers
    run.seen = SeenSource(replace(IDENTITY, system_id="7002"), 0x500)
    with pytest.raises(IdentityChanged, match="another source"):
        run.committer.heed_source()


def test_a_source_that_was_exchanged_is_named_however_it_showed(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its store is gone with it, and somebody may find that first."""
    monkeypatch.setattr(batch_committer, "_EXCHANGED_SECONDS", 0.3)
    run.resume()
    run.deliver(SECOND)
    looks = iter(range(100))

    def keep() -> None:
        if next(looks) == exchanged_at:
            run.seen = SeenSource(IDENTITY, 0x100)

    run.session.keep = keep
    gone = StoreError("penstock.table_state does not exist")
    exchanged_at = -1
    assert run.committer.behind(gone) is gone
    looks, exchanged_at = iter(range(100)), 1
    assert isinstance(run.committer.behind(gone), IdentityChanged)
