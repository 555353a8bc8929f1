"""A class is found by its name, and is made of few parts."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import penstock

SOURCE = Path(penstock.__file__).parent
MOST_PARAMETERS = 6


def classes() -> Iterator[tuple[str, ast.ClassDef]]:
    for file in SOURCE.rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef):
                yield str(file.relative_to(SOURCE)), node


def test_no_two_public_classes_share_a_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file, node in classes():
        if not node.name.startswith("_"):
            places[node.name].append(file)
    assert places
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


def test_no_constructor_has_more_than_six_parameters() -> None:
    counts: dict[str, int] = {}
    for file, node in classes():
        for method in node.body:
            if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                given = method.args
                parameters = [*given.posonlyargs, *given.args, *given.kwonlyargs][1:]
                counts[f"{file}: {node.name}"] = len(parameters)
    assert counts
    assert {name: count for name, count in counts.items() if count > MOST_PARAMETERS} == {}
