"""One array value of any dimensions and bounds, taken apart into the texts of its elements."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from penstock.decode.types.text_column import MalformedTextError

_MOST_DIMENSIONS = 6
_BOUNDS = re.compile(r"((?:\[[+-]?\d{1,10}:[+-]?\d{1,10}\]){1,6})=", re.ASCII)
_BOUND = re.compile(r"\[([+-]?\d+):([+-]?\d+)\]", re.ASCII)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


@dataclass(frozen=True)
class ArrayText:
    """Lengths and lower bounds by dimension (none for an empty array), elements row by row."""

    dimensions: tuple[int, ...]
    lower_bounds: tuple[int, ...]
    elements: list[str | None]


@cache
def _token(delimiter: str) -> re.Pattern[str]:
    other = re.escape(delimiter)
    return re.compile(
        rf'(?P<mark>[{{}}{other}])|"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<bare>[^"\\{{}}{other}]+)',
        re.DOTALL,
    )


def split_array(text: str, delimiter: str = ",") -> ArrayText:
    """Take apart what array_out writes; MalformedTextError for anything else."""
    bounds = _BOUNDS.match(text)
    scan = _Scan(delimiter)
    scan.read(text, bounds.end() if bounds else 0)
    dimensions = tuple(scan.lengths)
    if bounds is None:
        return ArrayText(dimensions, (1,) * len(dimensions), scan.elements)
    pairs = [(int(low), int(high)) for low, high in _BOUND.findall(bounds[1])]
    if tuple(high - low + 1 for low, high in pairs) != dimensions:
        raise MalformedTextError("the array's bounds do not match its elements")
    return ArrayText(dimensions, tuple(low for low, _ in pairs), scan.elements)


class _Scan:
    """Reads braces, elements and delimiters, and checks that all sub-arrays are alike."""

    def __init__(self, delimiter: str) -> None:
        self.elements: list[str | None] = []
        self.lengths: list[int] = []
        self._delimiter = delimiter
        self._counts: list[int] = []  # members so far of each open brace
        self._closed = False

    def read(self, text: str, position: int) -> None:
        token = _token(self._delimiter)
        after = "start"
        while position < len(text):
            match = token.match(text, position)
            if match is None or self._closed:
                raise MalformedTextError("the array's quotes or braces do not match")
            position = match.end()
            after = self._take(match, after)
        if not self._closed:
            raise MalformedTextError("the array does not end")

    def _take(self, match: re.Match[str], after: str) -> str:
        """Take one token after a start, an open brace, a member or a delimiter."""
        mark = match["mark"]
        if mark == "{":
            self._open(after)
            return "open"
        if mark == "}":
            self._close(after)
            return "member"
        if mark is not None:
            if after != "member":
                raise MalformedTextError("the array has an element without a value")
            return "delimiter"
        self._element(match, after)
        return "member"

    def _open(self, after: str) -> None:
        if after == "member" or (self.elements and len(self._counts) == len(self.lengths)):
            raise MalformedTextError("the array has a brace out of place")
        if len(self._counts) == _MOST_DIMENSIONS:
            raise MalformedTextError(f"the array has more than {_MOST_DIMENSIONS} dimensions")
        if self._counts:
            self._counts[-1] += 1
        self._counts.append(0)
        if not self.elements:
            self.lengths.append(-1)

    def _close(self, after: str) -> None:
        if after not in ("open", "member") or not self._counts:
            raise MalformedTextError("the array has a brace out of place")
        count = self._counts.pop()
        depth = len(self._counts)
        if after == "open":
            if depth or self.elements:
                raise MalformedTextError("the array has an empty sub-array")
            self.lengths.clear()
        elif self.lengths[depth] not in (-1, count):
            raise MalformedTextError("the array's sub-arrays differ in length")
        else:
            self.lengths[depth] = count
        self._closed = not depth

    def _element(self, match: re.Match[str], after: str) -> None:
        if after not in ("open", "delimiter") or len(self._counts) != len(self.lengths):
            raise MalformedTextError("the array has an element out of place")
        self._counts[-1] += 1
        bare = match["bare"]
        if bare is None:
            self.elements.append(_ESCAPE.sub(r"\1", match["quoted"]))
        elif bare == "NULL":
            self.elements.append(None)
        elif bare.lower() == "null" or any(space in bare for space in " \t\n\v\f\r"):
            raise MalformedTextError("the array has an element that Postgres would have quoted")
        else:
            self.elements.append(bare)
