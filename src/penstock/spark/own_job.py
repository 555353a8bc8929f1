"""A pipeline inside a Spark job of somebody's own: a notebook, a scheduled job, spark-submit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from penstock.config import load_pipeline
from penstock.config.models import PipelineConfig
from penstock.model.lsn import Frontier
from penstock.pipeline.run.pipeline import Pipeline
from penstock.source.postgres.preflight.all_checks import require_passed
from penstock.spark import register
from penstock.spark.engine import SparkEngine
from penstock.spark.preflight import run_all_checks


def run_pipeline(
    file: Path | str,
    spark: SparkSession,
    *,
    only: str | None = None,
    until_caught_up: bool = True,
    stopping: Callable[[], bool] = lambda: False,
    captures: bool = True,
) -> Frontier:
    """Run the pipeline of a file on a session that is there, as `penstock run` does on its own. Of
    several destinations it runs the one called ``only``, as `penstock run --only` does.

    Call it on the driver's main thread. It returns when the destination holds what was committed at
    the start, or with ``until_caught_up=False`` once ``stopping()`` says so, and tells what the
    destination holds. The session goes on; ``spark:`` in the file is not looked at. With
    ``captures=False`` somebody else runs `penstock capture`.

    Raises PenstockError with cause and remedy.
    """
    path = Path(file)
    config = _on_session(load_pipeline(path, only=only), spark)
    require_passed(run_all_checks(config))
    register(spark)
    pipeline = Pipeline(config, path, partial(SparkEngine, session=spark), captures=captures)
    return pipeline.run(stopping, until_caught_up=until_caught_up)


def _on_session(config: PipelineConfig, spark: SparkSession) -> PipelineConfig:
    """The configuration with the settings that the session really has."""
    settings = dict(spark.sparkContext.getConf().getAll())
    own = config.spark.model_copy(update={"master": spark.sparkContext.master, "conf": settings})
    return config.model_copy(update={"spark": own})
