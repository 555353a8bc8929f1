"""`penstock snapshot`: the tables as they are now, without a stream."""

from __future__ import annotations

import logging

import typer

from penstock.cli.logs import shown_logs
from penstock.cli.pipeline_argument import OneDestination, PipelineFile, load_pipeline
from penstock.model.lsn import format_lsn

_log = logging.getLogger(__name__)


def snapshot(file: PipelineFile, only: OneDestination = None) -> None:
    """Copy all tables as they are at one point, then end.

    Nothing stays in the source: no publication, no slot. Targets are emptied first, unless they
    hold rows that Penstock did not bring (see source.copy.existing_rows). Started again after a
    crash it goes on where its snapshot still lives, else it begins anew. With destination.schema:
    full, the target gets all that the source's database has; what it could not get is listed.

    \b
    Example:
      penstock snapshot shop.yaml
    """
    from penstock.cli.copy_bars import CopyBars
    from penstock.cli.run import StopOnSignal
    from penstock.pipeline.copy.copy_only import copy_only
    from penstock.spark.engine import SparkEngine

    config = load_pipeline(file, only)
    stopping = StopOnSignal()
    stopping.install()
    with CopyBars() as bars, shown_logs(config.delivery, bars.say):
        _log.info("starting Spark", extra={"event": "starting"})
        report = copy_only(config, file, SparkEngine, stopping, observe_copies=bars)
        if report is None:
            _log.warning("stopped; started again, it goes on with what is missing")
            raise typer.Exit(1)
        _log.info(
            "copied %s tables with %s rows, as of %s",
            len(report.rows),
            f"{sum(report.rows.values()):,}",
            format_lsn(report.lsn),
            extra={"event": "copied", "lsn": format_lsn(report.lsn)},
        )
        for table, why in report.refused.items():
            _log.warning(
                "not copied: %s: %s", table, why, extra={"event": "table_refused", "table": table}
            )
        for each in report.unrestored:
            _log.warning("not restored: %s", each, extra={"event": "not_restored"})
    if report.refused:
        raise typer.Exit(1)
