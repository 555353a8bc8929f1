"""A time of day that is set back, which Spark's triggers would wait for."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from penstock.spark.query import PipelineQuery
from penstock.spark.wall_clock import WallClock
from tests.pipelines import logged


def test_a_query_whose_next_batch_would_be_long_in_coming_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    query = PipelineQuery.__new__(PipelineQuery)
    query._commits = SimpleNamespace(check=lambda: None)  # type: ignore[assignment]
    query._query = SimpleNamespace(awaitTermination=lambda _: False)  # type: ignore[assignment]
    query._clock = WallClock()
    told: list[str] = []
    now = time.time
    with logged(told.append):
        # Small steps back, and any forwards, delay nobody.
        for seconds, ends in ((0.0, False), (86_400.0, False), (86_399.5, False), (0.0, True)):
            monkeypatch.setattr(time, "time", lambda seconds=seconds: now() + seconds)
            assert query.wait(0.0) is ends
        assert query.wait(0.0) is False
    (line,) = told
    assert "set back by 864" in line
