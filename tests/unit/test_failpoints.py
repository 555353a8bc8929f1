"""Failpoints fire where, when and as often as they were told."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint, distribution
from pathlib import Path

import pytest

from penstock import destination, failpoints
from penstock.config.load import DESTINATIONS
from penstock.destination.registry import make_destination
from penstock.failpoints import PLACES, failpoint


@pytest.fixture
def set_points(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    def put(text: str) -> None:
        monkeypatch.setattr(failpoints, "_points", failpoints._parse(text))

    monkeypatch.delenv("PENSTOCK_FAILPOINT_DIR", raising=False)
    return put


def test_nothing_happens_by_default(set_points: Callable[[str], None]) -> None:
    set_points("")
    for name in PLACES:
        failpoint(name)


def test_it_fires_once_at_the_pass_it_was_told(set_points: Callable[[str], None]) -> None:
    set_points("task.read=error:3,task.written=error")
    failpoint("task.read")
    failpoint("task.read")
    with pytest.raises(RuntimeError, match=r"task\.read"):
        failpoint("task.read")
    failpoint("task.read")
    with pytest.raises(RuntimeError, match=r"task\.written"):
        failpoint("task.written")


def test_a_folder_makes_it_fire_once_in_all_processes(
    set_points: Callable[[str], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PENSTOCK_FAILPOINT_DIR", str(tmp_path))
    set_points("task.read=error")
    with pytest.raises(RuntimeError):
        failpoint("task.read")
    # As a restarted process would see it.
    set_points("task.read=error,task.written=error")
    failpoint("task.read")
    with pytest.raises(RuntimeError):
        failpoint("task.written")
    assert {path.name for path in tmp_path.iterdir()} == {"task.read", "task.written"}


@pytest.mark.parametrize(
    "text",
    [
        "nowhere=kill",
        "task.raed=kill",
        ".read=kill",
        "files.=kill",
        "task.read",
        "task.read=",
        "task.read=explode",
        "task.read=kill:x",
        "=kill",
    ],
)
def test_a_typing_error_is_not_a_test_that_passes(text: str) -> None:
    with pytest.raises(ValueError, match=r"PENSTOCK_FAILPOINTS.*places: capture\.received"):
        failpoints._parse(text)


@pytest.mark.parametrize("name", ["files.stagged", "nowhere.staged", "discard.staged"])
def test_a_place_that_no_destination_has_is_an_error(
    set_points: Callable[[str], None], name: str
) -> None:
    set_points(f"files.staged=kill,{name}=kill")
    with pytest.raises(ValueError, match=rf"no destination declares '{name}'; places of \w+: "):
        make_destination("discard", {}, "shop")
    set_points("files.staged=kill,task.read=kill")
    make_destination("discard", {}, "shop")


@pytest.mark.parametrize(
    "entry", distribution("penstock").entry_points.select(group=DESTINATIONS), ids=lambda e: e.name
)
def test_a_destination_declares_the_places_that_its_code_passes(entry: EntryPoint) -> None:
    # A module penstock.destination.NAME, or a package; and what its class has from a family.
    own = Path(destination.__file__).with_name(entry.module.split(".")[2])
    files = {*own.rglob("*.py")} if own.is_dir() else {own.with_suffix(".py")}
    declared = entry.load()
    inherited = {sys.modules[base.__module__].__file__ or "" for base in declared.__mro__[:-1]}
    files |= {Path(file) for file in inherited}
    passed = {
        name.replace("{self.name}", entry.name)
        for file in files
        for name in re.findall(r'\bfailpoint\(f?"(.*?)"\)', file.read_text())
    }
    assert passed == set(declared.failpoints)
    assert all(name.startswith(f"{entry.name}.") for name in passed)


def test_kill_ends_the_process_and_its_successor_passes(tmp_path: Path) -> None:
    code = "from penstock.failpoints import failpoint; failpoint('task.read'); print('alive')"
    env = {
        **os.environ,
        "PENSTOCK_FAILPOINTS": "task.read=kill",
        "PENSTOCK_FAILPOINT_DIR": str(tmp_path),
    }
    first, second = (
        subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, check=False)
        for _ in range(2)
    )
    assert (first.returncode, first.stdout) == (-signal.SIGKILL, b"")
    assert (second.returncode, second.stdout) == (0, b"alive\n")
