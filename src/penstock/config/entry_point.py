"""What packages bring along, found by name through entry points."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from penstock.model.errors import ConfigError


def names(group: str) -> list[str]:
    return sorted({entry.name for entry in entry_points(group=group)})


def find(group: str, name: str) -> Any:
    """What stands in the group under this name; None where nothing does."""
    found = entry_points(group=group, name=name)
    return next(iter(found)).load() if found else None


def load(group: str, name: str, option: str, kind: str) -> Any:
    """What stands in the group under this name. ``option`` is where the pipeline file names it,
    ``kind`` what it is. Raises ConfigError where there is none, or where a package is missing that
    it needs.
    """
    try:
        found = find(group, name)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{option}: the {kind} {name} needs the package {error.name}, which is not installed",
            remedy=f"install it, as with: pip install 'penstock[{name}]'",
        ) from None
    if found is None:
        known = names(group)
        raise ConfigError(
            f"{option}: there is no {kind} {name!r}",
            remedy=f"use one of: {', '.join(known)}"
            if known
            else f"install a package that has one in its entry points {group}",
        )
    return found
