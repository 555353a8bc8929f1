"""A pytest plugin that says what became of each test, and that the copy is what was tested."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from penstock.model.errors import PenstockError

OUTCOMES = "PENSTOCK_SABOTAGE_OUTCOMES"
"""The file that gets one JSON line a test."""
COPY = "PENSTOCK_SABOTAGE_COPY"
"""The folder that penstock has to come from."""
BROKEN = "PENSTOCK_SABOTAGE_BROKEN"
"""The module with the break, if there is one: it has to be one that can be imported."""

# What says that a guarantee does not hold. Anything else says that the break is no sound code.
_OF_A_GUARANTEE = (AssertionError, pytest.fail.Exception, PenstockError, psycopg.Error)


def pytest_configure() -> None:
    copy, name = Path(os.environ[COPY]), os.environ.get(BROKEN, "penstock.model")
    try:
        module = importlib.import_module(name)
    except Exception as error:
        raise pytest.UsageError(f"{name} cannot be imported: {error!r}") from error
    if copy not in Path(str(module.__file__)).parents:
        raise pytest.UsageError(f"{name} comes from {module.__file__}, not from {copy}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call" or report.outcome != "passed":
        _write(item.nodeid, _outcome(report, call.excinfo))
    return report


def _outcome(report: pytest.TestReport, raised: pytest.ExceptionInfo[Any] | None) -> str:
    """``passed``, ``failed: …``, or what else came of it."""
    if report.outcome != "failed" or raised is None:
        return report.outcome
    kind = raised.type.__name__
    if report.when != "call":
        return f"error in its {report.when}: {kind}"
    if issubclass(raised.type, _OF_A_GUARANTEE):
        return f"failed: {kind}"
    return f"error of the code: {kind}"


def _write(test: str, outcome: str) -> None:
    with Path(os.environ[OUTCOMES]).open("a") as file:
        file.write(json.dumps([test, outcome]) + "\n")
