"""That every break of `make sabotage` still is one, and what counts as noticed."""

from __future__ import annotations

import ast
from functools import cache

import pytest

from penstock.testing import DestinationContract
from tests.sabotage.a_break import ROOT, SOURCE, Break, DoesNotApply
from tests.sabotage.breaks import BREAKS
from tests.sabotage.copied_source import TestRun
from tests.sabotage.judgement import verdict

BROKEN = Break(
    name="a",
    guarantee="b",
    without="c",
    file="d.py",
    edits=(("x", "y"),),
    noticed_by=(("unit/test_e.py", "test_f"),),
)
(NAMED,) = BROKEN.tests


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: broken.name)
class TestEveryBreak:
    def test_applies(self, broken: Break) -> None:
        source = (ROOT / SOURCE / broken.file).read_text()
        assert ast.dump(ast.parse(broken.broken(source))) != ast.dump(ast.parse(source))

    def test_names_tests_that_are_there(self, broken: Break) -> None:
        assert broken.noticed_by
        for file, name in broken.noticed_by:
            assert name.partition("[")[0] in _tests(file)


def test_names_are_unique_and_every_guarantee_has_a_break() -> None:
    assert len({broken.name for broken in BREAKS}) == len(BREAKS) >= 25
    assert {broken.guarantee for broken in BREAKS} == _guarantees()


def test_a_text_that_is_not_there_or_there_twice_is_no_place_for_a_break() -> None:
    assert BROKEN.broken("x = 1") == "y = 1"
    for source in ("z = 1", "x = x"):
        with pytest.raises(DoesNotApply):
            BROKEN.broken(source)


@pytest.mark.parametrize(
    ("code", "outcomes", "noticed"),
    [
        (1, {NAMED: "failed: AssertionError"}, True),
        (1, {f"{NAMED}[1]": "failed: Failed", f"{NAMED}[2]": "passed"}, True),
        (0, {NAMED: "passed"}, False),
        (1, {f"{NAMED}_else": "failed: AssertionError", NAMED: "passed"}, False),
        (1, {NAMED: "error of the code: NameError"}, False),
        (1, {NAMED: "error in its setup: RuntimeError"}, False),
        (1, {f"{NAMED}[1]": "failed: Failed", f"{NAMED}[2]": "skipped"}, False),
        (1, {}, False),
        (2, {NAMED: "failed: AssertionError"}, False),
        (4, {}, False),
        (None, {NAMED: "failed: AssertionError"}, False),
    ],
)
def test_only_a_failure_of_the_named_test_counts(
    code: int | None, outcomes: dict[str, str], noticed: bool
) -> None:
    assert verdict(BROKEN, TestRun(code, outcomes, "")).noticed == noticed


def test_a_test_that_hangs_counts_where_the_break_says_so() -> None:
    hanging = Break(**{**vars(BROKEN), "hangs": True})
    assert verdict(hanging, TestRun(None, {}, "")).noticed


@cache
def _tests(file: str) -> frozenset[str]:
    """The names of a file's tests as pytest has them, without their parameters."""
    found = set()
    for node in ast.parse((ROOT / "tests" / file).read_text()).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            methods = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
            if any(ast.unparse(base) == DestinationContract.__name__ for base in node.bases):
                methods += dir(DestinationContract)
            found |= {f"{node.name}::{name}" for name in methods}
    return frozenset(found)


def _guarantees() -> set[str]:
    """The rows of the first table of the page."""
    page = (ROOT / "docs/guarantees.md").read_text()
    _, rule, *rows = next(part for part in page.split("\n\n") if part.startswith("|")).splitlines()
    assert set(rule) <= set("|- ")
    return {row.split("|")[1].strip() for row in rows}
