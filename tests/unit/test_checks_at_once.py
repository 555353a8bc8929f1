"""Checks that know nothing of each other are made at the same time."""

from __future__ import annotations

import threading

import pytest

from penstock.source.postgres.preflight.all_checks import CheckResult
from penstock.spark.preflight import at_once


def passed(name: str) -> list[CheckResult]:
    return [CheckResult(name, "passed", "fine")]


def test_they_wait_for_each_other_and_stay_in_order() -> None:
    # Each waits until all three have begun: one after the other, the first would never end.
    together = threading.Barrier(3)

    def group(name: str) -> list[CheckResult]:
        together.wait(120)
        return passed(name)

    names = ["source", "destination", "Java"]
    results = at_once({name: lambda name=name: group(name) for name in names})  # type: ignore[misc]
    assert [result.name for result in results] == names
    assert {result.status for result in results} == {"passed"}


def test_one_that_breaks_hides_none_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> list[CheckResult]:
        raise KeyError("lost")

    monkeypatch.delenv("PENSTOCK_DEBUG", raising=False)
    groups = {"source": broken, "destination": lambda: passed("destination")}
    first, second = at_once(groups)
    assert (first.name, first.status) == ("source", "failed")
    assert first.detail == "unexpected KeyError: 'lost'"
    assert "bug" in first.remedy
    assert second.status == "passed"
    monkeypatch.setenv("PENSTOCK_DEBUG", "1")
    with pytest.raises(KeyError, match="lost"):
        at_once(groups)
