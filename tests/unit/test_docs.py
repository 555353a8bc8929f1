"""What the docs say about the code must be true of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("docs/**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    text = page.read_text()
    named = re.findall(r"\b((?:src|tests|docs|bench)/[\w./-]+\w\.(?:py|md|json|yaml))\b", text)
    links = [
        str((page.parent / target).resolve().relative_to(ROOT))
        for target in re.findall(r"\]\((?!http|#)([^)#]+)", text)
    ]
    missing = [name for name in [*named, *links] if not (ROOT / name).exists()]
    assert not missing


def test_the_walk_passes_every_package_on_the_way() -> None:
    walk = (ROOT / "docs/life_of_a_change.md").read_text()
    for package in ("config", "source/postgres", "changelog", "spark", "pgoutput", "decode"):
        assert f"src/penstock/{package}/" in walk


def test_the_parts_of_a_run_are_classes_that_exist() -> None:
    page = (ROOT / "docs/life_of_a_run.md").read_text()
    classes = {
        name
        for file in (ROOT / "src/penstock").rglob("*.py")
        for name in re.findall(r"^class (\w+)", file.read_text(), re.MULTILINE)
    }
    named = set(re.findall(r"\b(?:[A-Z][a-z]+){2,}\b", page))
    assert len(named) > 10
    assert named <= classes
