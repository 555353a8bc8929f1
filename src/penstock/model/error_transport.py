"""Errors that cross processes as text: from executors, capture and the holders of snapshots.

An error keeps its class and its fields. Where the class cannot be imported on this side, the
nearest of its bases stands in, so that the pipeline still decides as it should.
"""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

from penstock.model.errors import PenstockError, rebuild

_MARK = "PENSTOCK-ERROR:"


def error_to_json(error: PenstockError) -> dict[str, Any]:
    """Its classes, the own one first, and its fields. A field that JSON does not know is a text."""
    kinds = [
        f"{kind.__module__}:{kind.__qualname__}"
        for kind in type(error).__mro__
        if issubclass(kind, PenstockError)
    ]
    fields: dict[str, Any] = json.loads(json.dumps(vars(error), default=str))
    return {"kinds": kinds, "fields": fields}


def error_from_json(value: dict[str, Any]) -> PenstockError:
    """The error again. Only classes of errors of ours are made, whatever the text names."""
    found = (kind for name in value["kinds"] if (kind := _kind(name)) is not None)
    return rebuild(next(found, PenstockError), value["fields"])


def error_to_text(error: PenstockError) -> str:
    """In a form that ``error_from_text`` finds in a longer text."""
    return f"{_MARK}{json.dumps(error_to_json(error))}"


def error_from_text(text: str) -> PenstockError | None:
    """The error in a text such as that of Spark's exception; None where there is none."""
    _, mark, rest = text.partition(_MARK)
    if not mark:
        return None
    try:
        value, _ = json.JSONDecoder().raw_decode(rest)
    except json.JSONDecodeError:
        return None
    return error_from_json(value)


def _kind(name: str) -> type[PenstockError] | None:
    module, _, qualified = name.partition(":")
    try:
        found: Any = import_module(module)
        for part in qualified.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return found if isinstance(found, type) and issubclass(found, PenstockError) else None
