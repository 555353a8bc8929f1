"""Commands and pipeline files that the docs show are ones that Penstock takes."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from penstock.cli.main import app
from penstock.config import load_deliveries

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def _blocks(page: Path, language: str) -> list[str]:
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [text for kind, text in found if kind == language]


def _commands() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for block in _blocks(page, ""):
            for line in re.findall(r"^penstock .*", block.replace("\\\n ", ""), re.MULTILINE):
                # What follows two spaces, a # or a | is for the reader, or for another program.
                yield page.name, re.split(r"\s\s+|\s#|\s\|", line)[0]


def _files() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for block in _blocks(page, "yaml"):
            if re.search(r"^name:", block, re.MULTILINE):
                yield page.name, block


@pytest.mark.parametrize(("page", "command"), list(_commands()))
def test_every_command_is_one(page: str, command: str) -> None:
    words = shlex.split(command)[1:]
    current: Any = typer.main.get_command(app)
    while hasattr(current, "commands"):
        name = words.pop(0)
        assert name in current.commands, f"{page}: {command}"
        current = current.commands[name]
    # Raises for an option that is not known, a file that is not named, an argument too many.
    current.make_context(command, words)


@pytest.mark.parametrize(("page", "text"), list(_files()))
def test_every_pipeline_file_loads(
    page: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in re.findall(r"\$\{(\w+)\}", text):
        monkeypatch.setenv(name, "postgresql://penstock@db/shop")
    file = tmp_path / page.replace(".md", ".yaml")
    file.write_text(text)
    assert load_deliveries(file)[0].name == "shop"


def test_there_is_something_to_try() -> None:
    shown = {command.split(" ")[1] for _, command in _commands()}
    assert {"run", "snapshot", "tables", "verify", "status"} <= shown
    assert {page for page, _ in _files()} >= {"README.md", "tables.md", "pipeline_file.md"}
