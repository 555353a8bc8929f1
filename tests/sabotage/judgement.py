"""Whether a break was noticed."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.sabotage.a_break import Break, DoesNotApply
from tests.sabotage.copied_source import CopiedSource, TestRun

SECONDS_A_BREAK = 240.0
_SECONDS_A_TEST = 60.0
_FAILED = 1
"""What pytest ends with if tests failed, and nothing else went wrong."""


@dataclass(frozen=True)
class Verdict:
    """``noticed`` is what to show for a break; ``details`` say more where it was not."""

    noticed: bool
    text: str
    details: str = ""


def judge(broken: Break) -> Verdict:
    """Apply a break to a copy of the source, and run the tests that have to notice."""
    with tempfile.TemporaryDirectory(prefix="penstock-sabotage-") as folder:
        source = CopiedSource(Path(folder))
        try:
            complaints = source.apply(broken)
        except DoesNotApply as error:
            return Verdict(False, f"does not apply: {error}")
        if complaints:
            return Verdict(False, "is no code that runs", complaints)
        return verdict(broken, source.test(broken.tests, SECONDS_A_BREAK))


def verdict(broken: Break, run: TestRun) -> Verdict:
    if run.code is None:
        text = f"did not end in {SECONDS_A_BREAK:g} s"
        return Verdict(broken.hangs, text, "" if broken.hangs else run.last_words)
    missed = [test for test in broken.tests if not _failed(run.of(test))]
    if missed or run.code != _FAILED:
        said = "; ".join(_said(run, test) for test in missed)
        return Verdict(False, f"NOT NOTICED: pytest ended with {run.code}; {said}", run.last_words)
    return Verdict(True, "noticed by " + "; ".join(_noticed(run, test) for test in broken.tests))


def judge_unbroken(breaks: Sequence[Break]) -> Verdict:
    """Whether all tests pass that have to notice: without a break, on a copy of the source too."""
    tests = list(dict.fromkeys(test for each in breaks for test in each.tests))
    with tempfile.TemporaryDirectory(prefix="penstock-sabotage-") as folder:
        run = CopiedSource(Path(folder)).test(tests, _SECONDS_A_TEST * (1 + len(tests)))
    others = [_said(run, test) for test in tests if {*run.of(test)} != {"passed"}]
    if run.code != 0 or others:
        return Verdict(False, "\n".join(["without a break:", *others]), run.last_words)
    return Verdict(True, f"without a break, {len(tests)} tests pass")


def _failed(outcomes: Sequence[str]) -> bool:
    """Whether a test failed with some of its parameters, and passed or failed with the others."""
    failed = [outcome for outcome in outcomes if outcome.startswith("failed: ")]
    return bool(failed) and {*outcomes} - {*failed} <= {"passed"}


def _said(run: TestRun, test: str) -> str:
    return f"{test}: {', '.join(dict.fromkeys(run.of(test))) or 'did not run'}"


def _noticed(run: TestRun, test: str) -> str:
    """A test, and what it failed with."""
    kinds = {outcome.removeprefix("failed: ") for outcome in run.of(test)} - {"passed"}
    return f"{test.removeprefix('tests/')} ({', '.join(sorted(kinds))})"
