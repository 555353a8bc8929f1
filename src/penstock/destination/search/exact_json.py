"""JSON that is read and written again without a change: numbers keep their digits."""

from __future__ import annotations

import json
import re
from typing import Any

# Postgres's json may have half of a pair, which no UTF-8 has.
_HALF = re.compile("[\ud800-\udfff]")


class Digits(str):
    """A number as it was written: Python's own would lose digits, or take only some thousand."""

    __slots__ = ()


def read_exactly(text: str | bytes) -> Any:
    """Numbers that no int writes in the same way become Digits."""
    return json.loads(text, parse_float=Digits, parse_int=_whole)


def write_exactly(value: Any) -> str:
    """What ``read_exactly`` gave, as text. However deep it is: JSON may have more levels than
    Python has calls.
    """
    found: list[str] = []
    left: list[Any] = [(None, value)]
    while left:
        before, each = left.pop()
        if before is not None:
            found.append(before)
        if isinstance(each, dict) and each:
            left.append(("}", _NOTHING))
            members = [(f",{_text(key)}:", member) for key, member in each.items()]
            members[0] = ("{" + members[0][0][1:], members[0][1])
            left += reversed(members)
        elif isinstance(each, list) and each:
            left.append(("]", _NOTHING))
            left += [(",", member) for member in reversed(each[1:])]
            left.append(("[", each[0]))
        elif each is not _NOTHING:
            found.append(str(each) if isinstance(each, Digits) else _text(each))
    return "".join(found)


_NOTHING = object()


def _whole(text: str) -> int | Digits:
    number = int(text) if len(text) <= 20 else 0
    return number if str(number) == text else Digits(text)


def _text(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if text.isascii() else _HALF.sub(lambda half: f"\\u{ord(half[0]):04x}", text)
