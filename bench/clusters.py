"""Spark clusters of one and of two isolated workers, each with a warm session of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.settings import ON_CLUSTERS
from bench.warm_spark import WarmSpark
from penstock.config.models import SparkConfig
from penstock.spark.environment import pack
from tests.spark_cluster import SparkCluster


@dataclass(frozen=True)
class ClusterSpark:
    """A driver's session on a cluster."""

    spark: WarmSpark
    cluster: SparkCluster

    def executors(self) -> list[int]:
        """The processes of all executors, with their Python workers."""
        return [
            pid
            for executor in self.cluster.live_executors()
            for pid in (executor.pid, *(child.pid for child in executor.children(recursive=True)))
        ]


@contextmanager
def cluster_spark(system: str, folder: Path) -> Iterator[ClusterSpark]:
    """A cluster for one system; workers do not see ``folder``."""
    archive = folder / "penstock_env.tar.gz"
    if not archive.exists():
        pack(archive)
    with SparkCluster(folder, ON_CLUSTERS[system]) as cluster:
        config = SparkConfig.model_validate(cluster.settings(archive))
        with WarmSpark(folder, config) as spark:
            yield ClusterSpark(spark, cluster)
