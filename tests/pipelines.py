"""Pipelines that run in the tests' own process, on the session that all tests share or without."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.config.models import PipelineConfig
from penstock.metrics.pipeline_metrics import Metrics
from penstock.pipeline.run.engine import MakeEngine
from penstock.pipeline.run.pipeline import Observers, Pipeline
from penstock.spark.engine import SparkEngine
from tests.threads_engine import Threads, ThreadsEngine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def engine_on(tasks: SparkSession | Threads) -> MakeEngine:
    """Leaves the session running."""
    if isinstance(tasks, Threads):
        return partial(ThreadsEngine, width=tasks.width)
    return partial(SparkEngine, session=tasks)


def pipeline_on(
    tasks: SparkSession | Threads,
    config: PipelineConfig,
    file: Path,
    metrics: Metrics | None = None,
) -> Pipeline:
    return Pipeline(config, file, engine_on(tasks), observers=Observers(metrics=metrics))


class _Texts(logging.Handler):
    def __init__(self, note: Callable[[str], None]) -> None:
        super().__init__()
        self._note = note

    def emit(self, record: logging.LogRecord) -> None:
        self._note(record.getMessage())


@contextmanager
def logged(note: Callable[[str], None]) -> Iterator[None]:
    """Gives ``note`` every line that Penstock logs for people, until the block ends."""
    logger, handler = logging.getLogger("penstock"), _Texts(note)
    before = logger.level
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
