"""What Spark does by itself: it merges a stream of ours into an Iceberg table by MERGE, and writes
what it reads by JDBC to one.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bench.jdbc_driver import jdbc_driver
from bench.meter import Meter
from bench.process_usage import pipeline_processes
from bench.readers import PATIENCE_SECONDS, measure_capture
from bench.results import Measurement
from bench.server import BenchDatabase, BenchError, BenchPipeline
from bench.warm_spark import WarmSpark
from bench.workloads import Load
from penstock.config.models import SparkConfig
from tests.iceberg_spark import iceberg_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SPARK_MERGE = "spark_merge"
SPARK_JDBC = "spark_jdbc_iceberg"
WITH_ICEBERG = (SPARK_MERGE, SPARK_JDBC)
_CATALOG = "spark.sql.catalog.bench"
_COLUMNS = (
    "id bigint, quantity int, name string, price decimal(12,2), note string, tags array<string>,"
    " details string, changed_at timestamp"
)
_NAMES = [column.split()[0] for column in _COLUMNS.replace("(12,2)", "").split(", ")]


def iceberg_spark(folder: Path) -> WarmSpark:
    """Spark as it is by default, with Iceberg's runtime and the JDBC driver."""
    jars = [*sorted(iceberg_jars().iterdir()), jdbc_driver()]
    return WarmSpark(
        folder,
        SparkConfig(
            conf={
                "spark.driver.extraClassPath": ":".join(map(str, jars)),
                "spark.driver.extraJavaOptions": (
                    "-XX:TieredStopAtLevel=4 -XX:-UseSerialGC -XX:+UseG1GC"
                ),
                "spark.sql.extensions": (
                    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
                ),
                _CATALOG: "org.apache.iceberg.spark.SparkCatalog",
                f"{_CATALOG}.type": "hadoop",
                f"{_CATALOG}.warehouse": str(folder / "spark_lake"),
            },
        ),
    )


@dataclass(frozen=True)
class MergeJob:
    """`foreachBatch` and MERGE over a change log that is complete. Its result are the seconds that
    it took, and how many rows are left.
    """

    log: str
    name: str
    checkpoint: str

    def run(
        self,
        session: SparkSession,
        _stopping: Callable[[], bool],
    ) -> tuple[float, int]:
        from pyspark.sql import Window
        from pyspark.sql.functions import desc, row_number

        from penstock.spark import register

        register(session)
        table = f"bench.db.{self.name}"
        # What is merged on read is merged faster.
        session.sql(
            f"CREATE TABLE {table} ({_COLUMNS}) USING iceberg TBLPROPERTIES ('format-version'='2',"
            " 'write.merge.mode'='merge-on-read')"
        )
        newest = Window.partitionBy("id").orderBy(desc("_commit_lsn"), desc("_ordinal"))
        sets = ", ".join(f"t.{name} = s.{name}" for name in _NAMES)
        values = ", ".join(f"s.{name}" for name in _NAMES)

        def merge(batch: DataFrame, _number: int) -> None:
            last = batch.withColumn("newest", row_number().over(newest)).where("newest = 1")
            last.createOrReplaceTempView("changed")
            batch.sparkSession.sql(
                f"MERGE INTO {table} t USING changed s ON t.id = s.id"  # noqa: S608 (our own names)
                " WHEN MATCHED AND s._op = 'delete' THEN DELETE"
                f" WHEN MATCHED THEN UPDATE SET {sets}"
                f" WHEN NOT MATCHED AND s._op <> 'delete' THEN INSERT ({', '.join(_NAMES)})"
                f" VALUES ({values})"
            )

        began = time.monotonic()
        query = (
            session.readStream.format("penstock")
            .option("path", self.log)
            .option("table", "public.item")
            .load()
            .writeStream.foreachBatch(merge)
            .option("checkpointLocation", self.checkpoint)
            .start()
        )
        try:
            query.processAllAvailable()
            seconds = time.monotonic() - began
        finally:
            query.stop()
        # The query had a session of its own, and with it another catalogue.
        session.sql(f"REFRESH TABLE {table}")
        rows = session.table(table).count()
        session.sql(f"DROP TABLE {table} PURGE")
        return seconds, rows


def measure_spark_merge(
    spark: WarmSpark, database: BenchDatabase, name: str, pipeline: BenchPipeline, load: Load
) -> Measurement:
    """The log is filled before the clock runs: what Spark does with it counts, and no more."""
    measure_capture(database, name, pipeline, load)
    rows = database.conn.execute("SELECT count(*) FROM item").fetchone()
    log = pipeline.config.change_log.path
    job = MergeJob(log, pipeline.config.name, f"{log}-checkpoint")
    with Meter(lambda: pipeline_processes(spark.pid), lambda: 0.0, None) as meter:
        seconds, left = spark.merge(job, PATIENCE_SECONDS)
        spent = meter.read()
    if rows != (left,):
        raise BenchError(
            f"{SPARK_MERGE} left {left:,} rows, not {rows}.",
            remedy="It is a bug of the benchmark: the figures mean nothing.",
        )
    return Measurement(
        name, SPARK_MERGE, load.changes, seconds, spent.cpu_s, None, spent.peak_rss_mb
    )
