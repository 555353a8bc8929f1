"""The log of a run: read as it grows, and never larger than it may be."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.serve.supervise import run_log
from penstock.serve.supervise.run_log import RunLog


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "shop.log"


@pytest.fixture
def write(path: Path) -> Callable[[bytes], None]:
    """As the run's process writes: it holds the file open, and appends."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    return lambda data: None if os.write(descriptor, data) == len(data) else pytest.fail("short")


def line(number: int) -> bytes:
    return json.dumps({"message": f"said {number}", "level": "info"}).encode() + b"\n"


def test_a_run_that_lives_for_months_keeps_a_short_log(
    path: Path, write: Callable[[bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_log, "_MOST_BYTES", 10_000)
    monkeypatch.setattr(run_log, "_KEPT_BYTES", 2_000)
    log = RunLog(path)
    read, largest = [], 0
    for number in range(2_000):
        write(line(number)[:7])
        # It may be looked at in the middle of a line.
        read += log.read()
        log.shorten()
        write(line(number)[7:])
        largest = max(largest, path.stat().st_size)
    read += log.read()
    assert [entry["message"] for entry in read] == [f"said {number}" for number in range(2_000)]
    assert largest < 11_000
    before = path.with_suffix(".log.1")
    assert before.stat().st_size <= 2_000
    assert before.stat().st_mode & 0o077 == 0
    assert before.read_text().startswith('{"message"')


def test_what_was_not_read_is_not_cut_off(
    path: Path, write: Callable[[bytes], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_log, "_MOST_BYTES", 100)
    monkeypatch.setattr(run_log, "_KEPT_BYTES", 50)
    log = RunLog(path)
    write(line(1) * 10)
    assert len(log.read()) == 10
    write(line(2))
    log.shorten()
    assert [entry["message"] for entry in log.read()] == ["said 2"]
