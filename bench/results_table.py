"""The results as tables of plain columns, with bold headings in a terminal."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.settings import COPIES

_PLAIN_WIDTH = 100

Format = Callable[[Any], str]


def _whole(value: float) -> str:
    return f"{value:,.0f}"


def _two_digits(value: float) -> str:
    return f"{value:.2f}"


Columns = tuple[tuple[str, str, Format], ...]

_STREAM_COLUMNS: Columns = (
    ("workload", "workload", str),
    ("system", "system", str),
    ("rows/s", "rows_per_s", _whole),
    ("ratio", "ratio_to_pg_recvlogical", _two_digits),
    ("native", "ratio_to_native", _two_digits),
    ("CPU-s/M", "cpu_s_per_million", _two_digits),
    ("PSS MB", "peak_pss_mb", _whole),
    ("p50 ms", "p50_ms", _whole),
    ("p99 ms", "p99_ms", _whole),
)
# The ratios are to psql_copy_binary_2, spark_jdbc, psql_copy_pipe and pg_dump_restore_2.
_COPY_COLUMNS: Columns = (
    ("workload", "workload", str),
    ("system", "system", str),
    ("rows/s", "rows_per_s", _whole),
    ("tables/s", "tables_per_s", _whole),
    ("psql", "ratio_to_psql_copy", _two_digits),
    ("jdbc", "ratio_to_spark_jdbc", _two_digits),
    ("pipe", "ratio_to_psql_pipe", _two_digits),
    ("dump", "ratio_to_pg_dump", _two_digits),
    ("CPU-s/M", "cpu_s_per_million", _two_digits),
    ("PSS MB", "peak_pss_mb", _whole),
)

_STAGES = ("walsender", "capture", "driver", "jvm", "workers", "destination")


def stage_cells(entry: dict[str, Any]) -> list[str]:
    """One line of the table of stages: microseconds of processor time a change."""
    spent = entry["stage_cpu_us"]
    sums = [spent.get(stage) for stage in _STAGES] + [sum(spent.values())]
    return [*cells(entry)[:2], *("-" if us is None else f"{us:.2f}" for us in sums)]


def cells(entry: dict[str, Any]) -> list[str]:
    """One line of the table; a dash where a figure does not apply."""
    phase = entry.get("phase")
    if phase is not None:
        entry = entry | {"workload": f"{entry['workload']} {phase}"}
    values = [(entry.get(key), text) for _title, key, text in _columns(entry)]
    return ["-" if value is None else text(value) for value, text in values]


def _columns(entry: dict[str, Any]) -> Columns:
    return _COPY_COLUMNS if entry["workload"] in COPIES else _STREAM_COLUMNS


def print_table(entries: Iterable[dict[str, Any]], console: Console | None = None) -> None:
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console.width = _PLAIN_WIDTH
    ordered = sorted(entries, key=lambda entry: entry["workload"] in COPIES)
    for columns, group in itertools.groupby(ordered, _columns):
        # Narrow enough for 80 columns.
        table = Table(box=None, collapse_padding=True, pad_edge=False)
        for index, (title, _key, _format) in enumerate(columns):
            table.add_column(title, justify="left" if index < 2 else "right", no_wrap=True)
        for entry in group:
            table.add_row(*cells(entry))
        console.print(table)
    _print_stages([entry for entry in ordered if entry.get("stage_cpu_us")], console)


def _print_stages(entries: Sequence[dict[str, Any]], console: Console) -> None:
    if not entries:
        return
    table = Table(box=None, collapse_padding=True, pad_edge=False)
    for index, title in enumerate(("CPU us a change", "", *_STAGES, "sum")):
        table.add_column(title, justify="left" if index < 2 else "right", no_wrap=True)
    for entry in entries:
        table.add_row(*stage_cells(entry))
    console.print()
    console.print(table)
