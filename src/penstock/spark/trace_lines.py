"""Which lines of a process's stderr belong to a trace of Python or Java."""

from __future__ import annotations

import re

_JAVA = re.compile(
    rb"\s+at [\w.$/<>@]+\(|\s+\.\.\. \d+ more|\s*Caused by: |\s*Suppressed: |Exception in thread "
    rb"|(?:[a-z]\w*\.)+[A-Z][\w$]*(?:Exception|Error|Throwable)\b"
)
_BETWEEN = (b"During handling of the above exception", b"The above exception was the direct cause")


class TraceLines:
    """Tells of each line, one after another, whether it belongs to a trace.

    Of a trace of Python: its head, its frames and the line that names the exception. Of one of
    Java: the line that names the exception, and its frames.
    """

    def __init__(self) -> None:
        self._in_python = False
        self._after_python = False

    def __call__(self, line: bytes) -> bool:
        text = line.rstrip()
        if text.lstrip().startswith(b"Traceback (most recent call last):"):
            self._in_python = True
            return True
        if self._in_python:
            # Frames are indented; the first line that is not names the exception.
            self._in_python = not text or text[:1].isspace()
            self._after_python = True
            return True
        if self._after_python and (not text or text.startswith(_BETWEEN)):
            return True
        self._after_python = False
        return _JAVA.match(text) is not None
