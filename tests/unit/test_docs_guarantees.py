"""What docs/guarantees.md says of its tests: `make test` runs them."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_FILE = re.compile(r"tests/[\w/]+\.py")


def _rows() -> list[tuple[str, str]]:
    """Each guarantee, and what its last column names before a semicolon."""
    text = (ROOT / "docs" / "guarantees.md").read_text()
    table = text.split("\n\n| guarantee |")[1].split("\n\n")[0]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return [(row[0], row[-1].split(";")[0]) for row in cells]


def test_files_for_releases_are_told_apart() -> None:
    assert _runs_always(Path(__file__))
    assert not _runs_always(ROOT / "tests" / "crash" / "test_kafka_away.py")


def _runs_always(file: Path) -> bool:
    """Whether the file has a test that is not only for releases."""
    tree = ast.parse(file.read_text())
    marks = [node for node in tree.body if isinstance(node, ast.Assign)]
    if any("pytestmark" in ast.unparse(m) and "release" in ast.unparse(m) for m in marks):
        return False
    # A class may inherit its tests. Of parameters that are marked, others are not.
    tests = [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and node.name.startswith(("test_", "Test"))
    ]
    return any("pytest.mark.release" not in map(ast.unparse, t.decorator_list) for t in tests)


@pytest.mark.parametrize(("guarantee", "named"), _rows())
def test_every_push_runs_what_a_row_names(guarantee: str, named: str) -> None:
    files = _FILE.findall(named)
    assert files or "tests/contract" in named, f"{guarantee}: no test is named"
    late = [file for file in files if not _runs_always(ROOT / file)]
    assert not late, f"{guarantee}: only `make test-all` runs {late}"
