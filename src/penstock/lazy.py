"""Names that a module offers, loaded when somebody asks for them.

Every command reads a pipeline file, and so imports the options of its destination; what lies beside
them in the package may need Arrow, most of a second to load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def attributes(module: str, places: Mapping[str, str]) -> Callable[[str], Any]:
    """A ``__getattr__`` for ``module``: names, and in which modules they stand.

    It raises AttributeError for any other name, as Python asks of it.
    """

    def find(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(import_module(places[name]), name)

    return find
