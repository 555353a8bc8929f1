"""The driver's commit: what it tells capture, and what it refuses."""

from __future__ import annotations

import json
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.changelog.changelog import ChangeLog
from penstock.destination.memory import MemoryDestination, MemoryOptions, forget
from penstock.metrics.catalogue import BATCHES, DELIVERED
from penstock.metrics.pipeline_metrics import Metrics
from penstock.metrics.written import JobResult, Written
from penstock.model.errors import BatchAgain, DestinationUnavailable, LogError
from penstock.model.lsn import NOTHING, Frontier
from penstock.model.watermarks import Watermarks
from penstock.pipeline.run.batch_committer import BatchCommitter, Delivered
from tests.run_context import run_context


@pytest.fixture
def metrics() -> Metrics:
    return Metrics("shop")


@pytest.fixture
def committer(tmp_path: Path, metrics: Metrics) -> BatchCommitter:
    forget("shop")
    destination = MemoryDestination(MemoryOptions(), "shop")
    destination.open()
    context = run_context("shop", tmp_path, destination=destination, metrics=metrics)
    committer = BatchCommitter(context, wanted_lsn=77, observe=_SEEN.append)
    committer.take_up(NOTHING, {1, 7}, (), {})
    return committer


_SEEN: list[Delivered] = []


def test_capture_learns_of_a_commit_only_after_it(
    committer: BatchCommitter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = ChangeLog(str(tmp_path))
    commit = MemoryDestination.commit
    known: list[Frontier | None] = []

    def watched(*arguments: Any) -> None:
        commit(*arguments)
        told = log.reader("shop")
        known.append(None if told is None else told.frontier)

    monkeypatch.setattr(MemoryDestination, "commit", watched)
    committer(JobResult(), Frontier(10, 20))
    assert known == [NOTHING]
    state = log.reader("shop")
    assert state is not None
    assert (state.frontier, state.wanted_lsn) == (Frontier(10, 20), 77)
    assert _SEEN[-1].frontier == Frontier(10, 20)


def test_a_batch_never_takes_the_destination_back(
    committer: BatchCommitter, tmp_path: Path
) -> None:
    committer(JobResult(), Frontier(10, 20))
    with pytest.raises(LogError, match="back from"):
        committer(JobResult(), Frontier(10, 15))
    state = ChangeLog(str(tmp_path)).reader("shop")
    assert state is not None
    assert state.frontier == Frontier(10, 20)


def test_what_is_confirmed_is_what_every_table_holds(
    committer: BatchCommitter, tmp_path: Path
) -> None:
    committer.place({1: Frontier(10, 20)})
    committer.take_up(Frontier(30, 35), {1, 2}, {2}, {2: Frontier(5, 6)})
    log = ChangeLog(str(tmp_path))

    def confirmed() -> Frontier:
        state = log.reader("shop")
        assert state is not None
        assert state.stream == committer.standing.frontier, "what it has passed is said, too"
        return state.frontier

    assert confirmed() == Frontier(5, 6)
    # Table 1 catches up from (10, 20); table 2 is set aside and stays.
    committer(JobResult(), Frontier(15, 25))
    assert committer.standing == Watermarks(
        Frontier(30, 35), {1: Frontier(15, 25), 2: Frontier(5, 6)}
    )
    committer(JobResult(), Frontier(40, 45))
    assert committer.standing == Watermarks(Frontier(40, 45), {2: Frontier(5, 6)})
    assert confirmed() == Frontier(5, 6)


def test_the_log_is_kept_for_a_query_that_still_reads_it(
    committer: BatchCommitter, tmp_path: Path
) -> None:
    """Also if the table for which it reads from so far back is given up meanwhile."""
    committer(JobResult(), Frontier(30, 35))
    committer.place({1: Frontier(10, 20)})
    committer.take_up(Frontier(30, 35), {1}, (), {})
    committer.free([1])
    state = ChangeLog(str(tmp_path)).reader("shop")
    assert state is not None
    assert state.frontier == Frontier(10, 20)
    committer(JobResult(), Frontier(15, 25))
    committer(JobResult(), Frontier(40, 45))
    state = ChangeLog(str(tmp_path)).reader("shop")
    assert state is not None
    assert state.frontier == Frontier(40, 45)


def test_a_position_that_the_destination_does_not_remember_survives_a_torn_file(
    tmp_path: Path,
) -> None:
    """The default context has such a destination."""
    committer = BatchCommitter(run_context("shop", tmp_path))
    committer.take_up(NOTHING, {1, 7}, (), {})
    committer(JobResult(), Frontier(10, 20))
    (tmp_path / "readers" / "shop.json").write_bytes(b"")
    again = BatchCommitter(run_context("shop", tmp_path))
    assert again.take_up(NOTHING, {1, 7}, (), {}).frontier == Frontier(10, 20)
    json.loads((tmp_path / "readers" / "shop.json").read_bytes())


def test_one_that_the_destination_remembers_costs_no_second_file(
    committer: BatchCommitter, tmp_path: Path
) -> None:
    committer(JobResult(), Frontier(10, 20))
    assert [path.name for path in (tmp_path / "readers").iterdir()] == ["shop.json"]


def test_after_a_commit_that_failed_the_destination_is_asked_first(
    committer: BatchCommitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody knows whether it was committed, so nobody knows what to expect there."""

    def lose(*_: object) -> None:
        raise DestinationUnavailable("lost")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryDestination, "commit", lose)
        with pytest.raises(DestinationUnavailable):
            committer(JobResult(), Frontier(10, 20))
    with pytest.raises(BatchAgain):
        committer.commit_aside(JobResult(), {1: Frontier(5, 6)})
    committer.take_up(NOTHING, {1, 7}, (), {})
    committer(JobResult(), Frontier(10, 20))
    assert committer.standing.frontier == Frontier(10, 20)


def test_a_table_that_is_copied_holds_the_log_from_before_its_snapshot(
    committer: BatchCommitter, tmp_path: Path
) -> None:
    log = ChangeLog(str(tmp_path))

    def held() -> Frontier:
        state = log.reader("shop")
        assert state is not None
        return state.frontier

    committer(JobResult(), Frontier(10, 20))
    committer.place({7: Frontier(10, 20)})
    committer.take_up(NOTHING, {7}, {7}, {7: None})
    committer(JobResult(), Frontier(50, 60))
    assert held() == Frontier(10, 20)
    committer.place({7: Frontier(29, 30)})
    assert held() == Frontier(29, 30)
    committer.commit_aside(JobResult(), {7: Frontier(50, 60)})
    assert held() == Frontier(50, 60)
    committer.take_up(NOTHING, {1, 7}, (), {})
    assert committer.standing.is_together(())
    # One that starts again holds nothing.
    committer.place({7: Frontier(29, 30)})
    committer.free({7})
    assert held() == Frontier(50, 60)


def test_a_table_that_is_about_to_be_copied_holds_the_log_whoever_asks(
    committer: BatchCommitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It counts as new still, for which nothing waits; its snapshot is being taken."""
    committer(JobResult(), Frontier(10, 20))
    committer.place({7: Frontier(10, 20)})
    committer(JobResult(), Frontier(50, 60))
    told = Watermarks(Frontier(50, 60), {7: Frontier(10, 20)})
    monkeypatch.setattr(MemoryDestination, "committed", lambda _self: told)
    committer.take_up(NOTHING, {7}, {7}, {})
    assert committer.standing.low == Frontier(10, 20)
    committer.free({7})
    committer.take_up(NOTHING, {7}, {7}, {})
    assert committer.standing.low == Frontier(50, 60)


def test_a_table_that_was_let_go_holds_nothing(
    committer: BatchCommitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The destination hears of it with the next commit only."""
    committer(JobResult(), Frontier(50, 60))
    told = Watermarks(Frontier(50, 60), {9: Frontier(10, 20)})
    monkeypatch.setattr(MemoryDestination, "committed", lambda _self: told)
    committer.take_up(NOTHING, {7}, (), {})
    assert committer.standing == Watermarks(Frontier(50, 60))
    committer.take_up(NOTHING, {7, 9}, (), {})
    assert committer.standing == Watermarks(Frontier(50, 60), {9: Frontier(10, 20)})


def test_batches_do_not_bring_on_what_came_after_their_query_had_begun(
    committer: BatchCommitter,
) -> None:
    """They do not hold its changes."""
    committer(JobResult(), Frontier(10, 20))
    committer.place({7: Frontier(10, 20)})
    committer(JobResult(), Frontier(30, 40))
    assert committer.standing == Watermarks(Frontier(30, 40), {7: Frontier(10, 20)})


def test_a_destination_is_not_asked_while_another_thread_commits(
    committer: BatchCommitter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have one connection for both: what it read there would not be committed yet, or would
    break the commit off. The main thread asks for each table that comes while the run goes on.
    """
    commit, begun, ends = MemoryDestination.commit, threading.Event(), threading.Event()

    def slow(*given: Any) -> None:
        begun.set()
        assert ends.wait(60)
        commit(*given)

    monkeypatch.setattr(MemoryDestination, "commit", slow)
    with ThreadPoolExecutor(2) as threads:
        committing = threads.submit(committer, JobResult(), Frontier(10, 20))
        assert begun.wait(60)
        held = threads.submit(committer.held)
        try:
            with pytest.raises(TimeoutError):
                held.result(0.1)
        finally:
            ends.set()
        committing.result()
        assert held.result() == Watermarks(Frontier(10, 20))


def delivered(count: int) -> JobResult:
    return JobResult([], Written(Counter({("public.items", "insert"): count})))


def test_a_batch_is_counted_when_it_is_committed_and_once(
    committer: BatchCommitter, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise DestinationUnavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryDestination, "commit", refuse)
        with pytest.raises(DestinationUnavailable):
            committer(delivered(3), Frontier(10, 20))
    assert metrics.registry.total(DELIVERED) == 0
    committer.take_up(NOTHING, {1, 7}, (), {})
    assert metrics.registry.total(DELIVERED) == 0
    committer(delivered(3), Frontier(10, 20))
    committer.commit_aside(delivered(4), {7: Frontier(10, 20)})
    committer.commit_sections([], Frontier(30, 40), delivered(5))
    assert metrics.registry.total(DELIVERED, table="public.items", op="insert") == 12
    # What is replayed apart from the stream is no batch of it.
    assert metrics.registry.total(BATCHES) == 2


def test_a_batch_whose_commit_got_no_answer_is_counted_if_it_is_there(
    committer: BatchCommitter, metrics: Metrics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody brings it again then."""
    commit = MemoryDestination.commit

    def lose_answer(*given: Any) -> None:
        commit(*given)
        raise DestinationUnavailable("its answer was lost")

    with monkeypatch.context() as patch:
        patch.setattr(MemoryDestination, "commit", lose_answer)
        with pytest.raises(DestinationUnavailable):
            committer(delivered(3), Frontier(10, 20))
    assert metrics.registry.total(DELIVERED) == 0
    for _ in range(2):
        committer.take_up(NOTHING, {1, 7}, (), {})
        assert metrics.registry.total(DELIVERED) == 3
