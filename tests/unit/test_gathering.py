"""On a busy line a batch waits a moment for more; on a quiet one it never does."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.changelog import gathering
from penstock.changelog.batch_size import BatchSize
from penstock.changelog.changelog import ChangeLog
from penstock.changelog.gathering import Gathering
from penstock.changelog.log_batches import LogBatches
from penstock.changelog.segment import without_rows
from penstock.changelog.writer import LogWriter
from penstock.model.lsn import Frontier
from tests.fix_pipeline import wait_until

MIB = 2**20


def test_a_quiet_line_is_never_kept_waiting() -> None:
    gathering = Gathering()
    assert not any(gathering.waits(100_000, n, 10_000, n * 0.025) for n in range(20))


def test_a_busy_line_gathers_until_it_is_worth_a_batch() -> None:
    gathering = Gathering()
    waited = [gathering.waits(4 * MIB * n, n, 4 * MIB, 0.01 * n) for n in range(1, 13)]
    assert waited == [True] * 5 + [False] * 7


def test_one_that_becomes_quiet_is_not_waited_for() -> None:
    gathering = Gathering()
    assert gathering.waits(4 * MIB, "large", 4 * MIB, 0.0)
    assert not gathering.waits(4 * MIB + 100, "small", 100, 0.01)
    # Or where nothing comes at all.
    assert gathering.waits(4 * MIB, "another", 4 * MIB, 1.0)
    assert gathering.waits(4 * MIB, "another", 4 * MIB, 1.1)
    assert not gathering.waits(4 * MIB, "another", 4 * MIB, 1.2)


def test_nobody_waits_for_long_and_the_next_one_anew() -> None:
    gathering = Gathering()
    waited = [gathering.waits(3 * MIB, n, 2 * MIB, 0.1 * n) for n in range(7)]
    assert waited == [True, True, True, False, True, True, True]


def test_batches_of_the_log_gather(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "_BUSY_BYTES", 1)
    begin, end = Frontier(10, 11), Frontier(20, 21)
    log = ChangeLog(str(tmp_path))
    writer = LogWriter(log)
    writer.start_at(begin)
    writer.publish(without_rows(), end, is_open=False)
    batches = LogBatches(log, begin, BatchSize(2**27, 1))
    assert batches.next() is None
    assert batches.frontier == begin
    wait_until(lambda: batches.next() is not None, "nothing more came")
    assert batches.frontier == end
