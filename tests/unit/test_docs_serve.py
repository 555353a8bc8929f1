"""The service and the container of docs/serve.md, as far as they can be tried without either."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from penstock.cli.main import app

DOCS = Path(__file__).resolve().parents[2] / "docs"


def block(language: str) -> str:
    found = re.search(rf"```{language}\n(.*?)```", (DOCS / "serve.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def options_of(words: list[str]) -> dict[str, Any]:
    """What `penstock serve` makes of them; it raises for one that it does not know."""
    group: Any = typer.main.get_command(app)
    before, after = words[: words.index("serve")], words[words.index("serve") + 1 :]
    group.make_context("penstock", [*before, "serve"])
    parsed: dict[str, Any] = group.commands["serve"].make_context("serve", after).params
    return parsed


def test_the_command_of_the_unit() -> None:
    words = shlex.split(re.findall(r"^ExecStart=(.*)$", block("ini"), re.MULTILINE)[0])
    options = options_of(words[1:])
    assert (options["places"], options["host"]) == ([Path("/etc/penstock")], "127.0.0.1")
    # Without it, a restart of the server would end the pipelines.
    assert "KillMode=process" in block("ini").splitlines()


def test_the_command_of_the_container() -> None:
    entry = re.search(r"ENTRYPOINT (\[.*?\])", block("dockerfile"), re.DOTALL)
    assert entry is not None
    words = json.loads(entry[1].replace("\\\n", ""))
    options = options_of([*words[1:], "--allow-host", "penstock.example.org"])
    assert options["tls_cert"] == Path("/run/secrets/chain.pem")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    # A program and a user that are here.
    text = block("ini").replace("/opt/penstock/bin/penstock", sys.executable)
    unit = tmp_path / "penstock.service"
    unit.write_text(text.replace("User=penstock", "User=root"))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, check=False
    )
    ours = [line for line in done.stderr.splitlines() if unit.name in line]
    assert (done.returncode, ours) == (0, [])
