"""The driver's commit: what it tells capture, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.changelog.changelog import ChangeLog
from penstock.destination.memory import MemoryDestination, MemoryOptions, forget
from penstock.errors import LogError
from penstock.lsn import Frontier
from penstock.pipeline.apply_batch import BatchCommitter, Delivered
from penstock.pipeline.standing import Standing


@pytest.fixture
def committer(tmp_path: Path) -> BatchCommitter:
    forget("shop")
    destination = MemoryDestination(MemoryOptions(), "shop")
    destination.open()
    log = ChangeLog(str(tmp_path))
    return BatchCommitter(destination, log, "shop", 77, _SEEN.append)


_SEEN: list[Delivered] = []


def test_capture_learns_of_a_commit_only_after_it(
    committer: BatchCommitter, tmp_path: Path
) -> None:
    log = ChangeLog(str(tmp_path))
    assert log.reader("shop") is None
    committer([], Frontier(10, 20))
    state = log.reader("shop")
    assert state is not None
    assert (state.frontier, state.wanted_lsn) == (Frontier(10, 20), 77)
    assert _SEEN[-1].frontier == Frontier(10, 20)


def test_a_batch_never_takes_the_destination_back(
    committer: BatchCommitter, tmp_path: Path
) -> None:
    committer([], Frontier(10, 20))
    with pytest.raises(LogError, match="back from"):
        committer([], Frontier(10, 15))
    state = ChangeLog(str(tmp_path)).reader("shop")
    assert state is not None
    assert state.frontier == Frontier(10, 20)


def test_what_is_confirmed_is_what_every_table_holds(
    committer: BatchCommitter, tmp_path: Path
) -> None:
    committer.begin(Standing(Frontier(30, 35), {1: Frontier(10, 20), 2: Frontier(5, 6)}), {2})
    log = ChangeLog(str(tmp_path))

    def confirmed() -> Frontier:
        state = log.reader("shop")
        assert state is not None
        return state.frontier

    assert confirmed() == Frontier(5, 6)
    # Table 1 catches up from (10, 20); table 2 is set aside and stays.
    committer([], Frontier(15, 25))
    assert committer.standing == Standing(
        Frontier(30, 35), {1: Frontier(15, 25), 2: Frontier(5, 6)}
    )
    committer([], Frontier(40, 45))
    assert committer.standing == Standing(Frontier(40, 45), {2: Frontier(5, 6)})
    assert confirmed() == Frontier(5, 6)
