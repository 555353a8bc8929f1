"""What a person sees of the demo: a table that moves in a terminal, plain lines elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from penstock.demo.progress import Progress
from penstock.model.lsn import format_lsn
from penstock.model.quantity_text import bytes_text

INVARIANT = "Σ orders = Σ payments = Σ order_items at the destination"

_LINE_SECONDS = 2.5


@dataclass(frozen=True)
class Phase:
    """What the demo is doing; ``detail`` changes while it does."""

    name: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.detail}" if self.detail else self.name


class View(Protocol):
    """Shows where the demo stands. ``say`` is for lines that stay."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def say(self, text: str) -> None: ...

    def show(self, now: float, phase: Phase, progress: Progress | None) -> None: ...


def make_view(console: Console) -> View:
    """The view that suits what the console writes to."""
    return LiveView(console) if console.is_terminal else LineView(console)


class LiveView:
    """A table that is drawn again in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        self._console.print(Text(text))

    def show(self, now: float, phase: Phase, progress: Progress | None) -> None:
        heading = Text(f"▸ {phase}", style="bold cyan")
        body = Group(heading)
        if progress is not None:
            body = Group(_table(progress), _shared(progress), _invariant(progress), heading)
        self._live.update(body, refresh=True)


class LineView:
    """A line when the phase changes, and one every few seconds in between."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._phase = ""
        self._due = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)
        # A line that nobody can see yet is no line.
        self._console.file.flush()

    def show(self, now: float, phase: Phase, progress: Progress | None) -> None:
        if phase.name == self._phase and now < self._due:
            return
        self._phase, self._due = phase.name, now + _LINE_SECONDS
        self.say(str(phase) if progress is None else f"{phase} · {_line(progress)}")


def _line(progress: Progress) -> str:
    tables = ", ".join(
        f"{table.name} {table.rows:,}" + ("" if table.state == "following" else f" ({table.state})")
        for table in progress.tables
    )
    return (
        f"{progress.rows:,} rows at the destination, {progress.rows_per_second:,.0f} rows/s, "
        f"lag {_lag(progress)}, at {_position(progress)}, "
        f"invariant {progress.invariant} ({tables})"
    )


def _lag(progress: Progress) -> str:
    return f"{bytes_text(progress.lag_bytes)} / {progress.lag_seconds:.1f} s"


def _position(progress: Progress) -> str:
    return format_lsn(progress.frontier.end_lsn)


def _invariant(progress: Progress) -> Text:
    style = "bold red" if progress.invariant.broken else "green"
    return Text(f"  {INVARIANT}: {progress.invariant}", style=style)


def _shared(progress: Progress) -> Text:
    """What all tables that are followed have in common."""
    return Text(f"  lag {_lag(progress)}, everything up to {_position(progress)} is delivered")


def _table(progress: Progress) -> Table:
    table = Table(show_footer=True)
    table.add_column("table", "all tables", no_wrap=True)
    table.add_column("state", no_wrap=True, min_width=len("copying 100 %"))
    table.add_column("rows at destination", f"{progress.rows:,}", justify="right", no_wrap=True)
    table.add_column("rows/s", f"{progress.rows_per_second:,.0f}", justify="right", no_wrap=True)
    for row in progress.tables:
        table.add_row(row.name, row.state, f"{row.rows:,}", f"{row.rows_per_second:,.0f}")
    return table
