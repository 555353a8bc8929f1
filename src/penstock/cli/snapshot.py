"""`penstock snapshot`: the tables as they are now, without a stream."""

from __future__ import annotations

import typer

from penstock.cli.pipeline_argument import PipelineFile, load_pipeline
from penstock.model.lsn import format_lsn


def snapshot(file: PipelineFile) -> None:
    """Copy all tables as they are at one point, then end.

    Nothing stays in the source: no publication, no slot. Targets are emptied first, unless they
    hold rows that Penstock did not bring (see source.copy.existing_rows). Started again after a
    crash it goes on where its snapshot still lives, else it begins anew.

    \b
    Example:
      penstock snapshot shop.yaml
    """
    from penstock.cli.copy_bars import CopyBars
    from penstock.cli.run import StopOnSignal
    from penstock.pipeline.copy.copy_only import copy_only

    config = load_pipeline(file)
    stopping = StopOnSignal()
    stopping.install()

    def tell(text: str) -> None:
        bars.say(f"pipeline {config.name}: {text}")

    with CopyBars(tell) as bars:
        tell("starting Spark")
        report = copy_only(config, file, stopping, observe_copies=bars, say=tell)
    if report is None:
        tell("stopped; started again, it goes on with what is missing")
        raise typer.Exit(1)
    tell(
        f"copied {len(report.rows)} tables with {sum(report.rows.values()):,} rows, as of "
        f"{format_lsn(report.lsn)}"
    )
    for table, why in report.refused.items():
        tell(f"not copied: {table}: {why}")
    if report.refused:
        raise typer.Exit(1)
