"""Folders of tables, by their names."""

from __future__ import annotations

import string
from pathlib import Path

from penstock.destination.families.target import Target

_PLAIN = frozenset(string.ascii_letters + string.digits + "_-")


def folder_name(name: str) -> str:
    """A name as a folder's: bytes that are no letter, digit, _ or - become ``~`` and two digits."""
    found = [char if char in _PLAIN else "~" + char.encode().hex("~") for char in name]
    return "".join(found)


def table_folder(root: Path, target: Target) -> Path:
    return root / folder_name(target.schema) / folder_name(target.name)
