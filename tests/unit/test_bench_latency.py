from __future__ import annotations

import struct
from datetime import UTC, datetime

import numpy as np
import pytest

from bench.latency import Commits, delivery_times, stages
from penstock.model.lsn import Frontier
from penstock.pipeline.run.batch_committer import Delivered

pytestmark = pytest.mark.release


def delivered(*batches: tuple[int, float]) -> list[Delivered]:
    return [Delivered(Frontier(lsn, lsn + 8), 1, at) for lsn, at in batches]


def commits(*pairs: tuple[int, float]) -> Commits:
    lsn = np.array([pair[0] for pair in pairs], np.int64)
    at = np.array([pair[1] for pair in pairs])
    return Commits(lsn, at, at + 0.1)


def test_a_commit_counts_as_delivered_by_the_first_batch_that_covers_it() -> None:
    # The third delivery is an idle advance: the same commit, later.
    batches = delivered((100, 10.0), (200, 11.0), (200, 12.0), (300, 13.0))
    times = delivery_times(np.array([50, 100, 101, 200, 201]), batches)
    assert times.tolist() == [10.0, 10.0, 11.0, 11.0, 13.0]


@pytest.mark.parametrize("batches", [[], [(100, 10.0)]])
def test_a_commit_that_was_never_delivered_is_an_error(batches: list[tuple[int, float]]) -> None:
    with pytest.raises(ValueError, match="never delivered"):
        delivery_times(np.array([101]), delivered(*batches))


def test_the_stages_of_a_change_add_up_to_its_latency() -> None:
    batches = [
        Delivered(Frontier(100, 108), 1, 10.0, job_began=0.3, job_ended=0.1),
        Delivered(Frontier(200, 208), 1, 11.0, job_began=0.5, job_ended=0.3),
    ]
    found = stages(commits((100, 9.0), (150, 10.0)), batches)
    assert found == pytest.approx({"logged": 0.1, "begun": 0.5, "written": 0.2, "committed": 0.2})


def test_between_leaves_both_marks_out() -> None:
    chosen = commits((10, 1.0), (20, 2.0), (30, 3.0)).between(10, 30)
    assert chosen.lsn.tolist() == [20]
    assert chosen.logged_at.tolist() == [2.1]


def test_the_lead_in_begins_with_the_first_commit() -> None:
    began = datetime(2025, 1, 1, tzinfo=UTC).timestamp()
    chosen = commits((10, began), (20, began + 4.9), (30, began + 5.0))
    assert chosen.without_lead_in(5.0).lsn.tolist() == [30]


def test_begin_messages_hold_position_and_time_of_the_commit() -> None:
    a_minute_into_2000 = 60_000_000
    begins = struct.pack(">4q", 10, a_minute_into_2000, 2**40, a_minute_into_2000 + 500_000)
    found = Commits.of_begins(begins)
    began = datetime(2000, 1, 1, 0, 1, tzinfo=UTC).timestamp()
    assert found.lsn.tolist() == [10, 2**40]
    assert found.at.tolist() == [began, began + 0.5]
    assert Commits.of_begins(b"").between(0, 100).lsn.tolist() == []
