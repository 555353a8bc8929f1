"""`penstock run`: a whole pipeline in one command."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.arrow_alone import keep_pandas_out
from penstock.cli.logs import shown_logs
from penstock.cli.pipeline_argument import (
    OneDestination,
    PipelineFile,
    chosen_deliveries,
    load_deliveries,
)

if TYPE_CHECKING:
    from penstock.config import PipelineConfig
    from penstock.pipeline.many.tether import Tether

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
    only: OneDestination = None,
    tether: Annotated[int | None, typer.Option("--tether", hidden=True)] = None,
    feed: Annotated[Path | None, typer.Option("--feed", hidden=True)] = None,
) -> None:
    """Run a pipeline: capture, Spark and destination, until Ctrl-C.

    Makes publication and slot by itself when they do not exist, copies the rows that are there
    (unless source.copy is false) and follows every change after that. Ctrl-C or SIGTERM stops
    everything in order; a second one stops at once. Started again, it goes on where the
    destination stands.

    A file with several destinations runs each of them in a process of its own, with one capture for
    all; `--only NAME` runs one of them (docs/many_destinations.md).

    \b
    Example:
      penstock run shop.yaml
      penstock run shop.yaml --until-caught-up    for a scheduler
      penstock run shop.yaml --no-capture         next to Spark, with `penstock capture shop.yaml`
                                                  next to the database
      penstock run shop.yaml --only warehouse     one of several destinations
    """
    views = chosen_deliveries(file, only)
    if len(views) > 1:
        _require_own_jvms(views)
        _run_many(file, views, until_caught_up=until_caught_up, no_capture=no_capture)
        return
    with _tied(tether) as tie:
        _run_one(
            file,
            views[0],
            tie,
            until_caught_up=until_caught_up,
            no_capture=no_capture,
            feed=feed,
        )


def _require_own_jvms(views: Sequence[PipelineConfig]) -> None:
    """Raise ConfigError under spark-submit: it has made one JVM, and each destination needs one."""
    from penstock.model.errors import ConfigError
    from penstock.spark.java import is_submitted

    if is_submitted():
        names = ", ".join(view.destination_name for view in views)
        raise ConfigError(
            f"the file has several destinations ({names}), and spark-submit starts one driver: "
            "each of them needs its own",
            remedy="submit each by itself, with `run FILE --only NAME`; the first one captures for "
            "all (docs/clusters.md)",
        )


@contextmanager
def _tied(descriptor: int | None) -> Iterator[Tether | None]:
    """The tether to the command that started us, if one did: it shows our error, with our name."""
    if descriptor is None:
        yield None
        return
    from penstock.model.errors import PenstockError
    from penstock.pipeline.many.tether import Tether

    tie = Tether(descriptor)
    try:
        yield tie
    except PenstockError as error:
        tie.say_failed(error)
        raise typer.Exit(1) from None


def _run_many(
    file: Path, views: Sequence[PipelineConfig], *, until_caught_up: bool, no_capture: bool
) -> None:
    from penstock.metrics.of_many import ManyMetrics
    from penstock.metrics.service import served_metrics
    from penstock.operations.run_record import recorded_run
    from penstock.pipeline.many.many_deliveries import ManyDeliveries
    from penstock.source.postgres.preflight.all_checks import require_passed
    from penstock.source.registry import source_checks

    config = views[0]
    # What is wrong with a destination holds back that one alone, and its process says so.
    require_passed(source_checks(config))
    stopping = StopOnSignal()
    stopping.install()
    names = [view.destination_name for view in views]
    metrics = ManyMetrics(config.name, names)
    with (
        shown_logs(config.name),
        served_metrics(metrics, config.metrics) as url,
        recorded_run(config, file, url) as end_in_order,
    ):
        stopping.when_insisted = end_in_order
        what = "" if no_capture else "capture and "
        _log.info(
            "starting %s%s destinations: %s",
            *(what, len(names), ", ".join(names)),
            extra={"event": "starting"},
        )
        many = ManyDeliveries(views, file, metrics, captures=not no_capture)
        failed = many.run(stopping, until_caught_up=until_caught_up)
        _log.info("stopped", extra={"event": "stopped"})
        if failed:
            raise typer.Exit(1)


def _run_one(
    file: Path,
    config: PipelineConfig,
    tie: Tether | None,
    *,
    until_caught_up: bool,
    no_capture: bool,
    feed: Path | None,
) -> None:
    keep_pandas_out()
    from penstock.changelog.changelog import ChangeLog
    from penstock.cli.copy_bars import CopyBars
    from penstock.cli.run_report import RunReport
    from penstock.config.metrics_config import ListenAddress
    from penstock.destination.registry import destination_class
    from penstock.metrics.catalogue import CATALOGUE, OF_CAPTURE
    from penstock.metrics.pipeline_metrics import Metrics
    from penstock.metrics.service import shown_metrics
    from penstock.model.errors import SparkLost
    from penstock.operations.run_record import recorded_run
    from penstock.pipeline.run.pipeline import Observers, Pipeline
    from penstock.source.postgres.preflight.all_checks import require_passed
    from penstock.spark.engine import starting_engine
    from penstock.spark.jvm import JVM_GONE
    from penstock.spark.preflight import run_all_checks

    stopping = StopOnSignal()
    shown, counted = config.metrics, CATALOGUE
    if tie is not None:
        tie.hold(stopping.stop)
        # Who started us asks for our metrics and shows them, beside those of capture.
        shown = shown.model_copy(update={"listen": shown.listen and ListenAddress("127.0.0.1", 0)})
        counted = tuple(metric for metric in CATALOGUE if metric not in OF_CAPTURE)
    require_passed(run_all_checks(config))
    if stopping():
        return
    stopping.install()
    metrics = Metrics(config.name, config.destination_name, counted)
    with (
        # Spark takes longest to start: it does so while all else is opened and connected.
        starting_engine(config) as make_engine,
        CopyBars(has_bars=tie is None) as bars,
        shown_logs(config.delivery, bars.say),
    ):
        kinds = {view.destination_type for view in load_deliveries(file)}
        uses_stdout = any(destination_class(kind).uses_stdout for kind in kinds)
        write = bars.say if uses_stdout else bars.write
        with ExitStack() as stack:
            url = stack.enter_context(shown_metrics(metrics, shown, write))
            if tie is None:
                # Who started us is the one to be found.
                whole = len(config.deliveries) == 1
                record = recorded_run(config, file, url, whole=whole)
                stopping.when_insisted = stack.enter_context(record)
            if tie is not None and url is not None:
                tie.say_metrics(url)
            what = "Spark" if no_capture else "Spark and capture"
            _log.info("starting %s", what, extra={"event": "starting"})
            observers = Observers(RunReport(ChangeLog.of(config.change_log)), bars, metrics)
            pipeline = Pipeline(
                config,
                file,
                make_engine,
                observers=observers,
                captures=not no_capture,
                feed=feed,
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
        self.when_insisted: Callable[[], None] = lambda: None
        """Called before the second signal ends the process: who stops twice means it."""

    def __call__(self) -> bool:
        return self._signalled

    def stop(self) -> None:
        """The same as a first signal. For any thread."""
        self._signalled = True

    def install(self) -> None:
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGTERM, self._on_signal)

    def _on_signal(self, number: int, _frame: object) -> None:
        if self._signalled:
            self.when_insisted()
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        self._signalled = True
