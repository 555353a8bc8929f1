"""What of a file is on the disk, and when."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from penstock.changelog.storage import Storage


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was made durable, and what got its name, in the order in which that happened."""
    seen: list[str] = []
    fsync, replace, link = os.fsync, os.replace, os.link

    def synced(handle: int) -> None:
        found = os.fstat(handle)
        seen.append("folder" if stat.S_ISDIR(found.st_mode) else f"{found.st_size} bytes")
        fsync(handle)

    def replaced(old: str, new: str) -> None:
        seen.append(Path(new).name)
        replace(old, new)

    def linked(old: str, new: str) -> None:
        seen.append(Path(new).name)
        link(old, new)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    monkeypatch.setattr(os, "link", linked)
    return seen


def test_what_is_durable_was_synced_before_it_has_its_name(
    tmp_path: Path, steps: list[str]
) -> None:
    storage = Storage(str(tmp_path))
    storage.write("a", b"12345", durable=True)
    assert steps == ["5 bytes", "a", "folder"]
    steps.clear()
    assert storage.create("b", b"123")
    assert steps == ["3 bytes", "b", "folder"]


def test_what_may_be_lost_waits_for_no_disk(tmp_path: Path, steps: list[str]) -> None:
    Storage(str(tmp_path)).write("a", b"12345", durable=False)
    assert steps == ["a"]
