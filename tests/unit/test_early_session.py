"""A session that is begun before it is needed."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from penstock.config.models import SparkConfig
from penstock.model.errors import PenstockError, SparkLost
from penstock.spark import early_session as module
from penstock.spark.early_session import early_session
from tests.fix_pipeline import wait_until


class PlayedSpark:
    """Starts when a test lets it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.session: Any = object()
        self.failure: Exception | None = None
        self.go = threading.Event()
        self.go.set()
        self.warmed: list[object] = []
        self.ended: list[object] = []
        monkeypatch.setattr(module, "start_session", self._make)
        monkeypatch.setattr(module, "run_tasks", lambda session, *_: self.warmed.append(session))
        monkeypatch.setattr(module, "end_session", self.ended.append)

    def _make(self, _name: str, _config: SparkConfig) -> Any:
        self.go.wait()
        if self.failure is not None:
            raise self.failure
        return self.session


@pytest.fixture
def spark(monkeypatch: pytest.MonkeyPatch) -> PlayedSpark:
    return PlayedSpark(monkeypatch)


def test_who_takes_it_ends_it(spark: PlayedSpark) -> None:
    with early_session("shop", SparkConfig()) as early:
        assert early.take() is spark.session
        wait_until(lambda: spark.warmed == [spark.session], "its workers are there")
    assert not spark.ended


def test_one_that_nobody_takes_is_ended(spark: PlayedSpark) -> None:
    with early_session("shop", SparkConfig()):
        wait_until(lambda: bool(spark.warmed), "it has started")
    assert spark.ended == [spark.session]


def test_one_that_is_still_starting_is_ended_once_it_has(spark: PlayedSpark) -> None:
    spark.go.clear()
    threading.Timer(0.1, spark.go.set).start()
    with pytest.raises(PenstockError, match="in use"), early_session("shop", SparkConfig()):
        raise PenstockError("in use")
    assert spark.ended == [spark.session]


def test_what_keeps_it_from_starting_is_told_to_who_takes_it(spark: PlayedSpark) -> None:
    spark.failure = SparkLost("no memory")
    with early_session("shop", SparkConfig()) as early, pytest.raises(SparkLost, match="no memory"):
        early.take()
    assert not spark.ended


def test_a_cluster_is_asked_for_nothing_before_its_time(spark: PlayedSpark) -> None:
    with early_session("shop", SparkConfig(master="spark://host:7077")) as early:
        early.take()
    assert not spark.warmed
