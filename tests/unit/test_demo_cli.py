"""What `penstock demo` says and returns for each way it can end."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from penstock.cli.main import app
from penstock.demo import demonstration as demo_run
from penstock.demo.demonstration import Verdict
from penstock.demo.target_reader import Invariant
from penstock.demo.view import INVARIANT

Demo = Callable[..., Verdict]


@pytest.fixture(autouse=True)
def _signal_handlers() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def invoke(monkeypatch: pytest.MonkeyPatch, demo: Demo, *arguments: str) -> Any:
    monkeypatch.setattr(demo_run, "run_demo", demo)
    return CliRunner().invoke(app, ["demo", *arguments])


HELD = Invariant(1500, 20)
BROKEN = Invariant(3, 2, ("at 0/1A the sums were orders 1, payments 2",))
EQUAL = ("equal        public.orders: 1200 rows", "equal: 1 tables, 1200 rows")
DIFFERENT = ("DIFFERENT    public.carts: 3 rows", "NOT EQUAL: 1 of 1 tables")


def ends_with(verdict: Verdict) -> Demo:
    return lambda *_, **__: verdict


def test_an_equal_destination_ends_with_0(monkeypatch: pytest.MonkeyPatch) -> None:
    def demo(seconds: float, *, keep: bool, **_: object) -> Verdict:
        assert (seconds, keep) == (5.0, True)
        return Verdict(equal=True, report=EQUAL, invariant=HELD)

    result = invoke(monkeypatch, demo, "--seconds", "5", "--keep")
    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        "penstock verify:",
        "  equal        public.orders: 1200 rows",
        "  equal: 1 tables, 1200 rows",
        f"{INVARIANT}: never broken in 1,500 looks at 20 different sums",
    ]


def test_a_difference_ends_with_1_after_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = Verdict(equal=False, report=DIFFERENT, invariant=HELD)
    result = invoke(monkeypatch, ends_with(verdict))
    assert result.exit_code == 1
    assert "  DIFFERENT    public.carts: 3 rows" in result.stdout
    assert "differs from the source" in result.stderr
    assert "half a transaction" not in result.stderr
    assert "What to do:" in result.stderr


def test_a_broken_invariant_ends_with_1_even_if_all_is_equal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    verdict = Verdict(equal=True, report=EQUAL, invariant=BROKEN)
    result = invoke(monkeypatch, ends_with(verdict))
    assert result.exit_code == 1
    assert "showed half a transaction" in result.stderr
    assert "at 0/1A the sums were" in result.stderr
    assert "differs" not in result.stderr


def test_an_invariant_that_nobody_saw_proves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = Verdict(equal=True, report=EQUAL, invariant=Invariant())
    assert invoke(monkeypatch, ends_with(verdict)).exit_code == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_with_its_own_code(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    def demo(*_: object, stopping: Callable[[], bool], **__: object) -> Verdict:
        assert not stopping()
        signal.raise_signal(number)
        assert stopping()
        raise demo_run.Interrupted

    result = invoke(monkeypatch, demo)
    assert result.exit_code == 128 + number
    assert "no verdict" in result.stdout


def test_no_time_at_all_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    result = invoke(
        monkeypatch, ends_with(Verdict(equal=True, report=EQUAL, invariant=HELD)), "--seconds", "0"
    )
    assert result.exit_code == 2
    assert "--seconds" in result.stderr
