"""Shell completion: the scripts that shells take, and what they are told to offer."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest


def penstock(*words: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "penstock", *words],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_gets_a_script(shell: str) -> None:
    script = penstock("--show-completion", shell, _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1")
    assert "_PENSTOCK_COMPLETE" in script
    assert f"complete_{shell}" in script


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("penstock sta", {"status"}),
        ("penstock s", {"snapshot", "status", "schema", "serve"}),
        ("penstock tables re", {"remove", "resync", "resume", "retry"}),
        ("penstock run --until", {"--until-caught-up"}),
    ],
)
def test_commands_and_options_complete(line: str, offered: set[str]) -> None:
    words = len(line.split(" ")) - 1
    told = penstock(_PENSTOCK_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(words))
    assert set(told.split()) == offered
