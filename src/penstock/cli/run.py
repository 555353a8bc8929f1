"""`penstock run`: a whole pipeline in one command."""

from __future__ import annotations

import logging
import os
import signal
from typing import Annotated

import typer

from penstock.cli.logs import shown_logs
from penstock.cli.pipeline_argument import PipelineFile, load_pipeline

_log = logging.getLogger(__name__)


def run(
    file: PipelineFile,
    until_caught_up: Annotated[
        bool,
        typer.Option(
            "--until-caught-up",
            help="Stop once the destination holds what was committed when this command started.",
        ),
    ] = False,
    no_capture: Annotated[
        bool,
        typer.Option(
            "--no-capture", help="Leave capturing to `penstock capture`, here or elsewhere."
        ),
    ] = False,
) -> None:
    """Run a pipeline: capture, Spark and destination, until Ctrl-C.

    Makes publication and slot by itself when they do not exist, copies the rows that are there
    (unless source.copy is false) and follows every change after that. Ctrl-C or SIGTERM stops
    everything in order; a second one stops at once. Started again, it goes on where the
    destination stands.

    \b
    Example:
      penstock run shop.yaml
      penstock run shop.yaml --until-caught-up    for a scheduler
      penstock run shop.yaml --no-capture         next to Spark, with `penstock capture shop.yaml`
                                                  next to the database
    """
    from penstock.changelog.changelog import ChangeLog
    from penstock.cli.copy_bars import CopyBars
    from penstock.cli.run_report import RunReport
    from penstock.destination.registry import destination_class
    from penstock.metrics.pipeline_metrics import Metrics
    from penstock.metrics.service import shown_metrics
    from penstock.model.errors import SparkLost
    from penstock.operations.run_record import recorded_run
    from penstock.pipeline.run.pipeline import Observers, Pipeline
    from penstock.source.postgres.preflight.all_checks import require_passed
    from penstock.spark.engine import SparkEngine
    from penstock.spark.jvm import JVM_GONE
    from penstock.spark.preflight import run_all_checks

    config = load_pipeline(file)
    require_passed(run_all_checks(config))
    stopping = StopOnSignal()
    stopping.install()
    metrics = Metrics(config.name)
    with CopyBars() as bars, shown_logs(config.name, bars.say):
        uses_stdout = destination_class(config.destination_type).uses_stdout
        write = bars.say if uses_stdout else bars.write
        with (
            shown_metrics(metrics, config.metrics, write) as url,
            recorded_run(config, file, url),
        ):
            _log.info("starting Spark and capture", extra={"event": "starting"})
            observers = Observers(RunReport(ChangeLog.of(config.change_log)), bars)
            pipeline = Pipeline(
                config,
                file,
                SparkEngine,
                observers=observers,
                metrics=metrics,
                captures=not no_capture,
            )
            try:
                frontier = pipeline.run(stopping, until_caught_up=until_caught_up)
            except (SparkLost, *JVM_GONE):
                # Whoever stops us may signal each of our processes: this is no loss.
                if not stopping():
                    raise
                _log.info("stopped", extra={"event": "stopped"})
                return
        _log.info("stopped; the destination holds %s", frontier, extra={"event": "stopped"})


class StopOnSignal:
    """True once SIGINT or SIGTERM came; the second one ends the process at once."""

    def __init__(self) -> None:
        self._signalled = False

    def __call__(self) -> bool:
        return self._signalled

    def install(self) -> None:
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, _frame: object) -> None:
        if self._signalled:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._signalled = True
