"""`penstock check`: everything that must hold before the pipeline can run."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.pipeline_argument import OneDestination, PipelineFile, chosen_deliveries
from penstock.cli.terminal import cell, console, say

if TYPE_CHECKING:
    from penstock.source.postgres.preflight.all_checks import CheckResult
    from penstock.source.postgres.preflight.finding import Status

_STYLES: dict[Status, str] = {
    "passed": "green",
    "failed": "bold red",
    "warning": "yellow",
    "skipped": "dim",
}


def check(
    file: PipelineFile,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON array, for other programs.")
    ] = False,
    only: OneDestination = None,
) -> None:
    """Check source, role, tables, change log and destination; on a cluster also every executor.

    Changes nothing. On a Spark cluster a task runs on each executor and says whether it has
    Penstock, and reaches change log, source and destination.

    Lists every check with its result and, where it did not pass, what to do. Exits with 1 when any
    failed; warnings do not count.

    \b
    Example:
      penstock check shop.yaml
      penstock check shop.yaml --json | jq '.[] | select(.status != "passed")'
    """
    from penstock.spark.preflight import run_all_checks

    views = chosen_deliveries(file, only)
    results = run_all_checks(*views)
    if not views[0].spark.master.startswith("local"):
        from penstock.spark.executor_check import check_executors

        results += check_executors(views)
    if as_json:
        say(json.dumps([asdict(result) for result in results], indent=2))
    else:
        show_results(results)
    if any(result.status == "failed" for result in results):
        raise typer.Exit(1)


def show_results(results: list[CheckResult]) -> None:
    """A table in a terminal, one line a check elsewhere."""
    if console().is_terminal:
        _show_table(results)
    else:
        for result in results:
            say(f"{result.status:<8} {result.name}: {result.detail}")
            if result.remedy:
                say(f"         what to do: {result.remedy}")
    counts = Counter(result.status for result in results)
    say(", ".join(f"{counts[status]} {status}" for status in _STYLES if counts[status]))


def _show_table(results: list[CheckResult]) -> None:
    from rich.table import Table

    table = Table(show_lines=False, expand=True)
    table.add_column("result", no_wrap=True)
    table.add_column("check", no_wrap=True)
    table.add_column("detail", ratio=1)
    for result in results:
        detail = cell(result.detail)
        if result.remedy:
            detail.append(cell(f"\n→ {result.remedy}", "cyan"))
        table.add_row(cell(result.status, _STYLES[result.status]), cell(result.name), detail)
    console().print(table, soft_wrap=False)
