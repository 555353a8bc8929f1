"""How a command's log reaches a person, or a machine.

The parts of Penstock log with Python's ``logging``: a message for people, and fields (``event``,
``table``, …) for machines. Here they become lines on stderr.
"""

from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

from penstock.model.shown_text import shown_lines

FORMAT = "PENSTOCK_LOG_FORMAT"
LEVEL = "PENSTOCK_LOG_LEVEL"

_OWN = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
"""What every record has; the rest are fields of ours."""

Write = Callable[[str], None]


class LogFormat(StrEnum):
    """What `--log-format` takes."""

    text = "text"
    json = "json"


class LogLevel(StrEnum):
    """What `--log-level` takes."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class TextFormatter(logging.Formatter):
    """``pipeline shop: the message``, for people."""

    def __init__(self, pipeline: str) -> None:
        super().__init__()
        self._pipeline = pipeline

    def format(self, record: logging.LogRecord) -> str:
        return f"pipeline {self._pipeline}: {shown_lines(record.getMessage())}"


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, pipeline, message, and the record's fields."""

    def __init__(self, pipeline: str) -> None:
        super().__init__()
        self._pipeline = pipeline

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pipeline": self._pipeline,
            "message": record.getMessage(),
        }
        fields |= {name: value for name, value in vars(record).items() if name not in _OWN}
        return json.dumps(fields, default=str, ensure_ascii=False)


class _Lines(logging.Handler):
    """Hands every record to a function as a line: that one knows how not to break progress bars."""

    def __init__(self, write: Write) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._write(self.format(record))
        except Exception:
            self.handleError(record)


def to_stderr(line: str) -> None:
    """One line, at once."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def shown_logs(pipeline: str, write: Write = to_stderr) -> Iterator[None]:
    """Show what Penstock logs until the block ends, in the format and from the level on that
    `--log-format` and `--log-level` ask for.
    """
    as_json = os.environ.get(FORMAT) == "json"
    handler = _Lines(write)
    handler.setFormatter(JsonFormatter(pipeline) if as_json else TextFormatter(pipeline))
    logger, root = logging.getLogger("penstock"), logging.getLogger()
    before = logger.level
    logger.setLevel(os.environ.get(LEVEL, "INFO").upper())
    logger.addHandler(handler)
    # py4j logs by `logging.exception`, which gives a root logger without handlers one that shows
    # all: its trace of a JVM that was stopped, and then every line of ours a second time.
    silent = logging.NullHandler()
    root.addHandler(silent)
    try:
        yield
    finally:
        root.removeHandler(silent)
        logger.removeHandler(handler)
        logger.setLevel(before)
