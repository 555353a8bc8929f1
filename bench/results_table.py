"""The results as a table of plain columns, with bold headings in a terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console
from rich.table import Table

_PLAIN_WIDTH = 100

Format = Callable[[Any], str]


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _two_digits(value: float) -> str:
    return f"{value:.2f}"


_COLUMNS: tuple[tuple[str, str, Format], ...] = (
    ("workload", "workload", str),
    ("system", "system", str),
    ("rows/s", "rows_per_s", _whole),
    ("ratio", "ratio_to_pg_recvlogical", _two_digits),
    ("native", "ratio_to_native", _two_digits),
    ("CPU-s/M", "cpu_s_per_million", _two_digits),
    ("RSS MB", "peak_rss_mb", _whole),
    ("p50 ms", "p50_ms", _whole),
    ("p99 ms", "p99_ms", _whole),
)


def cells(entry: dict[str, Any]) -> list[str]:
    """One line of the table; a dash where a figure does not apply."""
    phase = entry.get("phase")
    if phase is not None:
        entry = entry | {"workload": f"{entry['workload']} {phase}"}
    values = [(entry.get(key), text) for _title, key, text in _COLUMNS]
    return ["-" if value is None else text(value) for value, text in values]


def print_table(entries: Iterable[dict[str, Any]], console: Console | None = None) -> None:
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    # Narrow enough for 80 columns.
    table = Table(box=None, collapse_padding=True, pad_edge=False)
    for index, (title, _key, _format) in enumerate(_COLUMNS):
        table.add_column(title, justify="left" if index < 2 else "right", no_wrap=True)
    for entry in entries:
        table.add_row(*cells(entry))
    console.print(table)
