"""Texts that others wrote, such as names of tables, on somebody's terminal or in a log.

A name may hold line ends, control sequences of terminals, and marks that turn the direction of
writing: whoever may name a table could write lines that look like ours, or over them.
"""

from __future__ import annotations

import re

# Control characters, other line ends, and marks of direction.
_ODD = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def shown_text(text: str) -> str:
    """With what a terminal would act on as an escape; line ends and tabs stay. In a JSON text the
    escape means the same.
    """
    return _ODD.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def shown_line(text: str) -> str:
    """The same, in one line."""
    return shown_text(text).replace("\n", "\\n").replace("\t", "\\t")


def shown_lines(text: str) -> str:
    """The same, with all lines but the first one indented: none of them looks like one of ours."""
    return shown_text(text).replace("\n", "\n    ")
