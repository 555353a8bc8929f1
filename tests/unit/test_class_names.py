"""A class is found by its name."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

import penstock

SOURCE = Path(penstock.__file__).parent


def test_no_two_public_classes_share_a_name() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for file in SOURCE.rglob("*.py"):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(SOURCE)))
    assert places
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
