"""What a capture process tells people."""

from __future__ import annotations

import sys

from penstock.model.shown_text import shown_lines


def say(text: str) -> None:
    """A line on stderr, at once: whoever started capture shows it."""
    print(f"capture: {shown_lines(text)}", file=sys.stderr, flush=True)
