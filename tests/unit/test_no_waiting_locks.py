"""Anybody who may connect can take an advisory lock, so nothing of ours waits for one."""

from __future__ import annotations

import re
from pathlib import Path

import penstock

_WAITS = re.compile(r"(?<!try_)advisory_(xact_)?lock(_shared)?\(")


def test_no_session_waits_for_an_advisory_lock() -> None:
    files = Path(penstock.__file__).parent.rglob("*.py")
    assert [str(file) for file in files if _WAITS.search(file.read_text())] == []
