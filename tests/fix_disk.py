"""What reaches the disk, and when files get their names."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest


@pytest.fixture
def disk_steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was synced (``5 bytes`` of a file, or a ``folder``), and the names that files got, in
    the order in which that happened.
    """
    seen: list[str] = []
    fsync, replace, link = os.fsync, os.replace, os.link

    def synced(handle: int) -> None:
        found = os.fstat(handle)
        fsync(handle)
        seen.append("folder" if stat.S_ISDIR(found.st_mode) else f"{found.st_size} bytes")

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
