"""How far copies are, in the terminal: a bar a table, or a line now and then."""

from __future__ import annotations

import logging
import sys
import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from penstock.model.quantity_text import bytes_text
from penstock.model.shown_text import shown_line
from penstock.pipeline.copy.copy_progress import CopyView, under_way

_MOST_BARS = 10
_LINE_SECONDS = 10.0

_log = logging.getLogger(__name__)


class CopyBars:
    """Shows what it is given; nothing while nothing is copied.

    On stderr, since stdout may be where the changes go. Without a terminal, it logs a line every
    few seconds.
    """

    def __init__(self, *, has_bars: bool = True) -> None:
        """``has_bars``: False where others write to the same terminal."""
        self._has_bars = has_bars
        self._console = Console(file=sys.stderr)
        self._stdout = sys.stdout
        self._progress: Progress | None = None
        self._bars: dict[str, TaskID] = {}
        self._next_line = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def say(self, text: str) -> None:
        """A line that does not break the bars."""
        if self._progress is not None:
            self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=sys.stderr, flush=True)

    def write(self, text: str) -> None:
        """A line for stdout that does not break the bars either."""
        if self._progress is not None and self._stdout.isatty():
            self.say(text)
        else:
            # Not sys.stdout: while bars are shown, that leads to where they are.
            print(text, file=self._stdout, flush=True)

    def __call__(self, views: list[CopyView]) -> None:
        current = under_way(views)
        if not self._has_bars or not self._console.is_terminal:
            self._line(views, current)
        elif current:
            self._show(views, current)
        else:
            self._stop()

    def _line(self, views: list[CopyView], current: list[CopyView]) -> None:
        if not current or time.monotonic() < self._next_line:
            return
        self._next_line = time.monotonic() + _LINE_SECONDS
        copied = sum(view.bytes_done for view in views)
        _log.info(
            "copying %s tables: %s of about %s, %s rows so far",
            len(current),
            bytes_text(copied),
            bytes_text(sum(view.bytes for view in views)),
            f"{sum(view.rows for view in views):,}",
            extra={"event": "copying", "tables": len(current), "bytes": copied},
        )

    def _show(self, views: list[CopyView], current: list[CopyView]) -> None:
        if self._progress is None:
            self._progress = Progress(
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                DownloadColumn(binary_units=True),
                TextColumn("{task.fields[rows]:,} rows"),
                TransferSpeedColumn(),
                TimeRemainingColumn(),
                console=self._console,
                transient=True,
            )
            self._progress.start()
        shown = current[:_MOST_BARS]
        for name in [name for name in self._bars if name not in {view.table for view in shown}]:
            self._progress.remove_task(self._bars.pop(name))
        for view in shown:
            if view.table not in self._bars:
                self._bars[view.table] = self._progress.add_task(shown_line(view.table), rows=0)
            self._progress.update(
                self._bars[view.table],
                total=view.bytes,
                completed=view.bytes_done,
                rows=view.rows,
            )

    def _stop(self) -> None:
        if self._progress is not None:
            self._progress.stop()
        self._progress = None
        self._bars = {}
