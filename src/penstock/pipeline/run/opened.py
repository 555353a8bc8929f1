"""What a command opens at its start and closes at its end."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from penstock.config.models import PipelineConfig
from penstock.destination.contract import Destination
from penstock.destination.registry import make_destination
from penstock.pipeline.run.filtering import check_filter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def opened_destination(config: PipelineConfig) -> Iterator[Destination]:
    """The pipeline's destination, taken over."""
    destination = make_destination(config.destination_type, config.destination_options, config.name)
    try:
        check_filter(config, destination)
        destination.open()
        yield destination
    finally:
        destination.close()


@contextmanager
def spark_session(config: PipelineConfig, given: SparkSession | None) -> Iterator[SparkSession]:
    """A session as the pipeline file wants it. One that is given is left running."""
    if given is not None:
        yield given
        return
    from penstock.spark.session import end_session, make_session

    session = make_session(config.name, config.spark)
    try:
        yield session
    finally:
        end_session(session)
