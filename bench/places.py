"""What a run's systems need beside the source: Spark, and the places that they deliver to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bench.broker import KafkaTopics
from bench.clickhouse_tables import ClickHouseTables
from bench.clusters import ClusterSpark
from bench.lakes import Lakes
from bench.object_logs import ObjectLogs
from bench.rabbit import RabbitQueues
from bench.search_server import SearchIndexes
from bench.warm_spark import WarmSpark


@dataclass(frozen=True)
class Places:
    """Those that a system of this run needs; None for the others. ``clusters`` are by system."""

    spark: WarmSpark | None = None
    kafka: KafkaTopics | None = None
    rabbit: RabbitQueues | None = None
    objects: ObjectLogs | None = None
    search: SearchIndexes | None = None
    lakes: Lakes | None = None
    iceberg: WarmSpark | None = None
    clickhouse: ClickHouseTables | None = None
    clusters: Mapping[str, ClusterSpark] = field(default_factory=dict)

    def spark_of(self, system: str) -> WarmSpark | None:
        """The session whose tasks deliver for a system."""
        cluster = self.clusters.get(system)
        return self.spark if cluster is None else cluster.spark
