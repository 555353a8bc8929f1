"""Validation errors of the pipeline file as sentences for the person who wrote it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence, Set
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from penstock.config.environment import KeyPath

_MAYBE_SECRET = re.compile(r"url|dsn|pass|secret|token|key|credential|auth", re.IGNORECASE)
_EXPECTED = "Input should be "


def describe(
    error: ValidationError,
    *,
    model: type[BaseModel] | None,
    touched: Set[KeyPath],
    place: Callable[[KeyPath], KeyPath] = lambda path: path,
) -> list[tuple[KeyPath, str]]:
    """Each problem as (key path, sentence).

    ``model`` is what was validated, for suggestions of keys; ``place`` says where in the file a
    path of it stands; values at ``touched`` paths came from the environment and are not repeated.
    """
    problems = []
    for item in error.errors(include_url=False):
        path = place(item["loc"])
        shown = _shown(item.get("input"), path, touched)
        problems.append((path, _sentence(item, shown, _known_keys(model, item["loc"][:-1]))))
    return problems


def format_path(path: KeyPath) -> str:
    """``source.tables.include[0]``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".") or "the file"


def format_problems(name: str, problems: Iterable[tuple[KeyPath, str]]) -> str:
    """One message for all problems of one file."""
    lines = [f"{format_path(path)}: {text}" for path, text in problems]
    if len(lines) == 1:
        return f"{name} is wrong at {lines[0]}"
    return "\n".join([f"{name} has {len(lines)} problems:", *(f"  {line}" for line in lines)])


def _sentence(item: Any, shown: str | None, known_keys: Sequence[str]) -> str:
    kind, message = item["type"], item["msg"]
    if kind == "extra_forbidden":
        return _unknown_key(str(item["loc"][-1]), known_keys)
    if kind == "missing":
        return "this key is missing and has no default"
    if kind in ("model_type", "model_attributes_type", "dict_type"):
        message = _EXPECTED + "a mapping of keys to values"
    if kind == "list_type":
        message = _EXPECTED + "a list"
    if not message.startswith(_EXPECTED):
        return str(message)
    expected = "expected " + message.removeprefix(_EXPECTED)
    return expected if shown is None else f"found {shown}; {expected}"


def _unknown_key(key: str, known_keys: Sequence[str]) -> str:
    if not known_keys:
        return "unknown key"
    close = difflib.get_close_matches(key, known_keys, n=1, cutoff=0.6)
    hint = f'did you mean "{close[0]}"?' if close else f"known keys: {', '.join(known_keys)}"
    return f"unknown key; {hint}"


def _known_keys(model: type[BaseModel] | None, path: KeyPath) -> list[str]:
    for part in path:
        if model is None:
            return []
        fields = {field.alias or key: field for key, field in model.model_fields.items()}
        annotation: Any = fields[str(part)].annotation if part in fields else None
        models = [
            kind
            for kind in (annotation, *get_args(annotation))  # the second: of a model or None
            if isinstance(kind, type) and issubclass(kind, BaseModel)
        ]
        model = models[0] if models else None
    if model is None:
        return []
    return sorted(field.alias or key for key, field in model.model_fields.items())


def _shown(value: object, path: KeyPath, touched: Set[KeyPath]) -> str | None:
    """The value as it may stand in a message; None where it may be, or hold, a secret."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list):
        return "a list"
    if path in touched or _MAYBE_SECRET.search(format_path(path)):
        return None
    text = repr(value)
    if "://" in text:
        return None
    return text if len(text) <= 60 else text[:57] + "..."
