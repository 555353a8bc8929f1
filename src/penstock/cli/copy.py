"""`penstock copy`: workers that copy tables for a pipeline that runs elsewhere."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.logs import shown_logs
from penstock.cli.pipeline_argument import OneDestination, PipelineFile, load_pipeline
from penstock.model.errors import PenstockError

if TYPE_CHECKING:
    from penstock.cli.run import StopOnSignal
    from penstock.config import PipelineConfig
    from penstock.store import PostgresStore

_log = logging.getLogger(__name__)


def copy(
    file: PipelineFile,
    workers: Annotated[
        int | None,
        typer.Option(
            min=1, max=1000, help="How many processes copy; as many as there are cores by default."
        ),
    ] = None,
    until_copied: Annotated[
        bool, typer.Option("--until-copied", help="End when no table waits for its rows.")
    ] = False,
    only: OneDestination = None,
    tether: Annotated[
        int | None, typer.Option(hidden=True, help="The socket to who started it.")
    ] = None,
) -> None:
    """Copy tables for a pipeline whose `penstock run` runs here or on another machine.

    As long as there are workers, the run copies nothing itself: it hands chunks to them, and
    commits what they wrote. They may come and go at any time. Without any, the run copies by
    itself, unless source.copy.workers is `required`. Each machine needs the pipeline file, the
    variables it names, and ways to source, destination and store; no Spark. Ctrl-C or SIGTERM ends
    the workers, each with the chunk that it is at.

    \b
    Example:
      penstock copy shop.yaml --workers 4
      penstock copy shop.yaml --workers 4 --until-copied
    """
    from penstock.cli.run import StopOnSignal

    config = load_pipeline(file, only)
    stopping = StopOnSignal()
    stopping.install()
    if tether is not None:
        _work(config, file, tether, stopping)
    else:
        _lead(config, file, workers or len(os.sched_getaffinity(0)), stopping, until_copied)


def _lead(
    config: PipelineConfig, file: Path, count: int, stopping: StopOnSignal, until_copied: bool
) -> None:
    from penstock.cli.copy_bars import CopyBars
    from penstock.pipeline.workers.worker_pool import WorkerPool
    from penstock.store import pipeline_store

    with (
        CopyBars() as bars,
        shown_logs(config.delivery, bars.say),
        pipeline_store(config) as store,
    ):
        if not _has_store(store, stopping):
            return
        _log.info("starting %s workers", count, extra={"event": "starting"})
        pool = WorkerPool(config, file, count)
        pool.run(store, stopping, bars, until_copied=until_copied)
        _log.info("the workers have ended", extra={"event": "stopped"})


def _has_store(store: PostgresStore, stopping: StopOnSignal) -> bool:
    """Wait until a run has made the store; False where it is to stop before that."""
    told = False
    while not store.exists():
        if stopping():
            return False
        if not told:
            _log.info("waiting for the first `penstock run`", extra={"event": "waiting"})
            told = True
        time.sleep(0.5)
    store.open()
    return True


def _work(config: PipelineConfig, file: Path, descriptor: int, stopping: StopOnSignal) -> None:
    """One of the processes; who started it tells a person why it gave up."""
    from penstock.pipeline.many.tether import Tether
    from penstock.pipeline.workers.copy_worker import CopyWorker
    from penstock.store import pipeline_store

    tether = Tether(descriptor)
    tether.hold(stopping.stop)
    with shown_logs(config.delivery):
        try:
            with pipeline_store(config) as store:
                store.open()
                CopyWorker(config, file, store).run(stopping)
        except PenstockError as error:
            tether.say_failed(error)
            raise typer.Exit(1) from None
