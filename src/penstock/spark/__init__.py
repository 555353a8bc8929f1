"""Everything that imports pyspark: the session, the source, the pipeline's query."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(spark: SparkSession) -> None:
    """Make ``spark.readStream.format("penstock")`` known to a session."""
    from penstock.spark.source import PenstockSource

    spark.dataSource.register(PenstockSource)


__all__ = ["register"]
