"""Errors carry their remedy wherever they go, and their tree is the one that is drawn."""

from __future__ import annotations

import pickle
import re

import pytest

from penstock.model import errors
from penstock.model.errors import PenstockError


def kinds(kind: type[PenstockError] = PenstockError) -> list[type[PenstockError]]:
    """The kinds that errors.py itself defines."""
    found = [kind]
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            found += kinds(child)
    return found


@pytest.mark.parametrize("kind", kinds())
def test_an_error_crosses_processes_whole(kind: type[PenstockError]) -> None:
    found = pickle.loads(pickle.dumps(kind("what happened", remedy="what to do")))  # noqa: S301
    assert type(found) is kind
    assert (str(found), found.message, found.remedy) == (
        "what happened",
        "what happened",
        "what to do",
    )


def test_a_remedy_may_be_missing() -> None:
    assert errors.LogError("x").remedy == ""


def test_the_drawn_tree_is_the_real_one() -> None:
    parents: list[str] = []
    drawn: dict[str, str] = {}
    for line in (errors.__doc__ or "").splitlines():
        match = re.match(r"([│├└─ ]*)([A-Z][A-Za-z]+)(?:\s{2,}|$)", line)
        if match is None:
            continue
        depth = len(match[1]) // 4
        parents[depth:] = [match[2]]
        if depth:
            drawn[match[2]] = parents[depth - 1]
    real = {kind.__name__: kind.__base__.__name__ for kind in kinds() if kind.__base__}
    real.pop("PenstockError")
    assert drawn == real
