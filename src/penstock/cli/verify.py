"""`penstock verify`: is the destination what the source is?"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cadence import paced
from penstock.cli.logs import shown_logs
from penstock.cli.pipeline_argument import (
    OneDestination,
    PipelineFile,
    load_deliveries,
    load_pipeline,
)
from penstock.cli.terminal import cell, console, say
from penstock.model.lsn import format_lsn

if TYPE_CHECKING:
    from penstock.config import PipelineConfig
    from penstock.verify.compare import Observe
    from penstock.verify.report import ConstraintResult, TableComparison, VerifyReport

_PROGRESS_SECONDS = paced(2.0)

_log = logging.getLogger(__name__)

_VERIFIED = ("postgres", "ducklake", "delta", "iceberg", "clickhouse")
_STYLES = {"equal": "green", "DIFFERENT": "bold red", "not compared": "bold red", "skipped": "dim"}


def verify(
    file: PipelineFile,
    parallel: Annotated[
        int, typer.Option("--parallel", "-p", min=1, help="Sessions on each side.")
    ] = 2,
    shown: Annotated[
        int, typer.Option("--show", min=1, help="How many differing rows to name of each table.")
    ] = 10,
    wait: Annotated[
        float,
        typer.Option(
            "--wait", min=0, help="Seconds that the destination may take to get to the position."
        ),
    ] = 600.0,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object, for other programs.")
    ] = False,
    only: OneDestination = None,
) -> None:
    """Compare source and destination at one position, and name every table and key that differs.

    Reads all rows of all tables on both sides, as of the same position of the source; only
    checksums leave the servers. While the pipeline runs it pauses for a moment, until the
    destination's rows are pinned in a snapshot; where it does not run, this command runs it up to
    the position. Nothing stops being written on either side.

    Constraints that replication does not enforce are checked too: foreign keys, deferrable unique
    constraints, and what was declared NOT VALID. Exits with 0 only if every table is equal and no
    constraint is violated. Of lakes and ClickHouse, rows are counted and summed, and those that
    differ are not named. Other destinations cannot be verified.

    \b
    Example:
      penstock verify shop.yaml
      penstock verify shop.yaml --parallel 4 --show 100
      penstock verify shop.yaml --only warehouse
      penstock verify shop.yaml --json | jq '.tables[] | select(.equal | not)'
    """
    from penstock.verify.verification import verify as compare

    config = _chosen(file, only)

    with shown_logs(config.delivery), _progress_bar() as observe:
        report = compare(config, file, parallel=parallel, shown=shown, wait=wait, observe=observe)
    if as_json:
        say(json.dumps(report.to_json(), indent=2))
    else:
        show_report(report)
    if not report.equal:
        raise typer.Exit(1)


def _chosen(file: Path, only: str | None) -> PipelineConfig:
    """The destination that is meant; where nobody says which, the only one that is a database."""
    databases = [view for view in load_deliveries(file) if view.destination_type in _VERIFIED]
    if only is None and len(databases) == 1:
        return databases[0]
    return load_pipeline(file, only)


@contextmanager
def _progress_bar() -> Iterator[Observe]:
    """A bar on a terminal; elsewhere it is logged now and then, for who looks on."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    out = console(stderr=True)
    if not out.is_terminal:
        yield _LoggedProgress()
        return
    columns = (
        TextColumn("comparing"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("pieces"),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=out, transient=True) as bar:
        task = bar.add_task("comparing", total=None, visible=False)
        yield lambda done, of: bar.update(task, completed=done, total=of, visible=True)


class _LoggedProgress:
    """Logs how far the comparison is, every few seconds and at its end."""

    def __init__(self) -> None:
        self._next = 0.0

    def __call__(self, done: int, of: int) -> None:
        now = time.monotonic()
        if now < self._next and done < of:
            return
        self._next = now + _PROGRESS_SECONDS
        _log.info(
            "compared %s of %s pieces",
            done,
            of,
            extra={"event": "compared", "done": done, "of": of},
        )


def show_report(report: VerifyReport) -> None:
    """A table in a terminal, lines elsewhere; the verdict last."""
    if console().is_terminal:
        _show_table(report)
    else:
        for table in report.tables:
            say(f"{_verdict(table):<12} {table.name}: {_detail(table)}")
            for line in _differences(table):
                say(f"             {line}")
    for result in report.constraints:
        if line := _constraint(result):
            say(line)
    say(summary(report))


def _show_table(report: VerifyReport) -> None:
    from rich.table import Table

    shown = Table(expand=True)
    shown.add_column("result", no_wrap=True)
    shown.add_column("table", no_wrap=True)
    shown.add_column("detail", ratio=1)
    for table in report.tables:
        verdict = _verdict(table)
        detail = cell("\n".join([_detail(table), *_differences(table)]))
        shown.add_row(cell(verdict, _STYLES[verdict]), cell(table.name), detail)
    console().print(shown, soft_wrap=False)


def _verdict(table: TableComparison) -> str:
    if table.not_compared:
        return "not compared"
    if table.skipped:
        return "skipped"
    return "equal" if table.equal else "DIFFERENT"


def _detail(table: TableComparison) -> str:
    if table.not_compared or table.skipped:
        return table.not_compared or table.skipped
    if table.equal:
        return f"{table.source_rows} rows"
    return (
        f"{table.source_rows} rows in the source, {table.target_rows} in the destination; "
        f"{'' if table.counted_all else 'at least '}{table.differing} differ"
    )


def _differences(table: TableComparison) -> list[str]:
    lines = [str(difference) for difference in table.differences]
    more = table.differing - sum(difference.count for difference in table.differences)
    if lines and more > 0:
        lines.append(f"and {'' if table.counted_all else 'at least '}{more} more")
    return lines


def _constraint(result: ConstraintResult) -> str:
    what = f"{result.kind} {result.name} of {result.table}"
    if result.unchecked:
        return f"unchecked    {what}: {result.unchecked}"
    if result.violations:
        more = " and more" if result.more else ""
        return f"VIOLATED     {what}: {', '.join(result.violations)}{more}"
    return ""


def summary(report: VerifyReport) -> str:
    """One line that says it all."""
    at = f"at {format_lsn(report.lsn)}"
    if report.drove:
        at += " (the pipeline was not running; it was run up to there)"
    if report.equal:
        checked = sum(not result.unchecked for result in report.constraints)
        compared = sum(not table.skipped for table in report.tables)
        return f"equal: {compared} tables, {report.rows} rows, {checked} constraints, {at}"
    unequal = sum(not table.equal for table in report.tables)
    return (
        f"NOT EQUAL: {unequal} of {len(report.tables)} tables, "
        f"{len(report.violated)} constraints violated, {at}"
    )
