"""`penstock run`: a whole pipeline in one command."""

from __future__ import annotations

import os
import signal
from typing import Annotated

import typer

from penstock.cli.pipeline_argument import PipelineFile
from penstock.config import load_pipeline


def run(
    file: PipelineFile,
    until_caught_up: Annotated[
        bool,
        typer.Option(
            "--until-caught-up",
            help="Stop once the destination holds what was committed when this command started.",
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
    """
    from penstock.changelog.changelog import ChangeLog
    from penstock.cli.copy_bars import CopyBars
    from penstock.cli.run_report import RunReport
    from penstock.destination.registry import destination_class
    from penstock.metrics.pipeline_metrics import Metrics
    from penstock.metrics.service import shown_metrics
    from penstock.pipeline.run.checks import run_all_checks
    from penstock.pipeline.run.pipeline import Pipeline
    from penstock.source.postgres.preflight.all_checks import require_passed

    config = load_pipeline(file)
    require_passed(run_all_checks(config))
    stopping = StopOnSignal()
    stopping.install()

    def tell(text: str) -> None:
        bars.say(f"pipeline {config.name}: {text}")

    metrics = Metrics(config.name)
    with CopyBars(tell) as bars:
        uses_stdout = destination_class(config.destination_type).uses_stdout
        write = bars.say if uses_stdout else bars.write
        with shown_metrics(metrics, config.metrics, tell, write):
            tell("starting Spark and capture")
            report = RunReport(ChangeLog(config.change_log.path), tell)
            pipeline = Pipeline(
                config, file, observe=report, observe_copies=bars, say=tell, metrics=metrics
            )
            frontier = pipeline.run(stopping, until_caught_up=until_caught_up)
    tell(f"stopped; the destination holds {frontier}")


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
