"""The text of an array as the catalogue gives it."""

from __future__ import annotations


def first_element(array: str | None) -> str | None:
    """The one element of an array's text, as attmissingval holds it; None without one."""
    if array is None:
        return None
    text = array[1:-1]
    if not text.startswith('"'):
        return None if text == "NULL" else text
    pieces = iter(text[1:-1])
    return "".join(next(pieces) if piece == "\\" else piece for piece in pieces)
