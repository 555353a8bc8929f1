"""``${NAME}`` inside the pipeline file: values, and above all secrets, from the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

KeyPath = tuple[str | int, ...]

_REFERENCE = re.compile(r"\$\$|\$\{([^}]*)(\})?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass
class Substitution:
    """A document with its references replaced.

    ``touched`` holds the paths whose value came from the environment: such a value is treated as a
    secret in messages. ``problems`` holds (path, text) for every reference that has no value.
    """

    value: Any = None
    touched: set[KeyPath] = field(default_factory=set)
    problems: list[tuple[KeyPath, str]] = field(default_factory=list)


def substitute(document: Any, environment: Mapping[str, str]) -> Substitution:
    """Replace ``${NAME}`` in every text value of the document, and ``$$`` by ``$``.

    Keys stay as they are, and so does a ``$`` that begins neither form.
    """
    result = Substitution()
    result.value = _walk(document, (), environment, result)
    return result


def _walk(node: Any, path: KeyPath, environment: Mapping[str, str], result: Substitution) -> Any:
    if isinstance(node, dict):
        return {key: _walk(item, (*path, key), environment, result) for key, item in node.items()}
    if isinstance(node, list):
        return [_walk(item, (*path, i), environment, result) for i, item in enumerate(node)]
    if isinstance(node, str):
        return _REFERENCE.sub(lambda found: _replace(found, path, environment, result), node)
    return node


def _replace(
    found: re.Match[str], path: KeyPath, environment: Mapping[str, str], result: Substitution
) -> str:
    if found[0] == "$$":
        return "$"
    name = found[1]
    if found[2] is None or not _VARIABLE.fullmatch(name):
        result.problems.append(
            (path, "${ does not begin a variable such as ${SHOP_URL}; write $$ for a plain $")
        )
    elif name not in environment:
        result.problems.append(
            (path, f"the environment variable {name} is not set; export it, or write the value")
        )
    else:
        result.touched.add(path)
        return environment[name]
    return ""
