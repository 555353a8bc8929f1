"""What a column's default says about its value, as the catalogue spells it."""

from __future__ import annotations

import re

_QUOTED = re.compile(r"(?P<prefix>[EB]?)'(?P<text>(?:[^']|'')*)'(?:::.*)?", re.DOTALL)
_NUMBER = re.compile(r"\(?(-?[0-9.]+(?:[eE][+-]?[0-9]+)?)\)?(?:::.*)?")
_BOOLEANS = {"true": "t", "false": "f"}
_NULL = re.compile(r"NULL(::.*)?")


def is_null(default: str) -> bool:
    """Whether the default is NULL, which is as good as none."""
    return _NULL.fullmatch(default) is not None


def constant(default: str) -> str | None:
    """The text of a default that is a constant; None where it is an expression."""
    if default in _BOOLEANS:
        return _BOOLEANS[default]
    if (number := _NUMBER.fullmatch(default)) is not None:
        return number[1]
    if (quoted := _QUOTED.fullmatch(default)) is None:
        return None
    text = quoted["text"].replace("''", "'")
    return text.replace("\\\\", "\\") if quoted["prefix"] == "E" else text
