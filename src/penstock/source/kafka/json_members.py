"""The members of JSON objects as the texts that stand there: no number is rounded, no embedded
document is written anew. Pure.
"""

from __future__ import annotations

import json
import re
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import NoReturn

_WHITE = re.compile(r"[ \t\n\r]*")


def _not_json(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=_not_json)


def members(text: str, at: int = 0) -> dict[str, str]:
    """Each member of the object that begins at ``at``, as text. Raises ValueError."""
    try:
        found, end = _members(text, _skip(text, at))
    except (IndexError, RecursionError) as error:
        raise ValueError(f"the JSON text ends early, or is too deep: {error}") from None
    if _skip(text, end) != len(text):
        raise ValueError("there is text behind the JSON object")
    return found


def _members(text: str, at: int) -> tuple[dict[str, str], int]:
    if text[at] != "{":
        raise ValueError("it is no JSON object")
    found: dict[str, str] = {}
    at = _skip(text, at + 1)
    if text[at] == "}":
        return found, at + 1
    while True:
        if text[at] != '"':
            raise ValueError(f"a name was expected at character {at}")
        name, at = scanstring(text, at + 1)
        at = _skip(text, at)
        if text[at] != ":":
            raise ValueError(f"a colon was expected at character {at}")
        at = _skip(text, at + 1)
        _, end = _decoder.raw_decode(text, at)
        found[name] = text[at:end]
        at = _skip(text, end)
        if text[at] == "}":
            return found, at + 1
        if text[at] != ",":
            raise ValueError(f"a comma was expected at character {at}")
        at = _skip(text, at + 1)


def string(text: str) -> str:
    """A member that is a JSON string. Raises ValueError."""
    if text[:1] != '"':
        raise ValueError(f"expected a string, found {text[:40]}")
    value, _ = scanstring(text, 1)
    found: str = value
    return found


def strings(text: str) -> list[str]:
    """A member that is a list of strings. Raises ValueError."""
    found = json.loads(text)
    if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
        raise ValueError(f"expected a list of strings, found {text[:40]}")
    return found


def _skip(text: str, at: int) -> int:
    match = _WHITE.match(text, at)
    assert match is not None  # noqa: S101 (it matches the empty text, too)
    return match.end()
