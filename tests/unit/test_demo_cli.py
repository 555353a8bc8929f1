"""What `penstock demo` says and returns for each way it can end."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.demo import run as demo_run
from penstock.demo.compare import TableVerdict

Demo = Callable[..., list[TableVerdict]]


@pytest.fixture(autouse=True)
def _signal_handlers() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def invoke(monkeypatch: pytest.MonkeyPatch, demo: Demo, *arguments: str) -> Any:
    monkeypatch.setattr(demo_run, "run_demo", demo)
    return CliRunner().invoke(app, ["demo", *arguments])


def test_equal_tables_end_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    def demo(seconds: float, *, keep: bool, **_: object) -> list[TableVerdict]:
        assert (seconds, keep) == (5.0, True)
        return [TableVerdict("orders", 1200, ()), TableVerdict("carts", 0, ())]

    result = invoke(monkeypatch, demo, "--seconds", "5", "--keep")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "  orders       equal, 1,200 rows",
        "  carts        equal, 0 rows",
        "Equal: all 1,200 rows of 2 tables, value by value.",
    ]


def test_a_difference_ends_with_1_and_names_table_and_key(monkeypatch: pytest.MonkeyPatch) -> None:
    def demo(*_: object, **__: object) -> list[TableVerdict]:
        return [
            TableVerdict("orders", 5, ()),
            TableVerdict("carts", 3, ("carts (session='s1'): missing in the files",)),
        ]

    result = invoke(monkeypatch, demo)
    assert result.exit_code == 1
    assert "  carts        DIFFERENT" in result.stdout
    assert "Equal:" not in result.stdout
    assert "differ from the source in carts." in result.stderr
    assert "carts (session='s1'): missing in the files" in result.stderr
    assert "What to do:" in result.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_with_its_own_code(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def demo(*_: object, stopping: Callable[[], bool], **__: object) -> list[TableVerdict]:
        assert not stopping()
        signal.raise_signal(number)
        assert stopping()
        raise demo_run.Interrupted

    result = invoke(monkeypatch, demo)
    assert result.exit_code == 128 + number
    assert "no verdict" in result.stdout


def test_no_time_at_all_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    result = invoke(monkeypatch, lambda *_, **__: [], "--seconds", "0")
    assert result.exit_code == 2
    assert "--seconds" in result.stderr
