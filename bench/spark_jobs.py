"""What the warm Spark session is asked for beside pipelines: a copy, a read by JDBC.

They are pickled to the session's process and run there.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import psycopg

from bench.server import BenchError
from penstock.config.load import load_pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipeline.copy.copy_progress import CopyView

_FETCH_SIZE = 10_000

# By the source's clock alone. A row's time is that of its transaction's begin, and what it records
# has happened by then.
_TIMES = """
SELECT
  (SELECT extract(epoch FROM min(since))::float8 FROM penstock.table_state
    WHERE pipeline = %(pipeline)s AND state ->> 'phase' = 'init'),
  (SELECT extract(epoch FROM min(started_at))::float8 FROM penstock.table_copy
    WHERE pipeline = %(pipeline)s),
  (SELECT extract(epoch FROM max(done_at))::float8 FROM penstock.copy_chunk
    WHERE pipeline = %(pipeline)s),
  (SELECT extract(epoch FROM max(since))::float8 FROM penstock.table_state
    WHERE pipeline = %(pipeline)s AND state ->> 'phase' = 'ready')
"""


@dataclass(frozen=True)
class CopyTimes:
    """Moments of a copy, in seconds since 1970: its first table was known, its rows began to be
    read, all chunks were recorded, all tables were ready.

    ``rows`` are by table; ``run_seconds`` is all of `penstock snapshot` but Spark's start.
    """

    init: float
    began: float
    chunks_done: float
    ready: float
    rows: dict[str, int]
    run_seconds: float


@dataclass(frozen=True)
class SnapshotJob:
    """`penstock snapshot` of a pipeline file."""

    file: Path

    def run(
        self,
        session: SparkSession,
        stopping: Callable[[], bool],
    ) -> CopyTimes:
        from penstock.pipeline.copy.copy_only import copy_only
        from penstock.spark.engine import SparkEngine

        config = load_pipeline(self.file)
        times: list[tuple[float, float, float, float]] = []

        def observe(views: list[CopyView]) -> None:
            # The store forgets a copy that is done, but is shown its end before.
            if views and all(view.phase == "ready" for view in views):
                with psycopg.connect(config.source.url.reveal()) as conn:
                    values = {"pipeline": f"{config.name}/snapshot"}
                    times.extend(conn.execute(_TIMES, values).fetchall())

        began = time.monotonic()
        report = copy_only(
            config,
            self.file,
            partial(SparkEngine, session=session),
            stopping,
            observe_copies=observe,
        )
        run_seconds = time.monotonic() - began
        if report is None:
            raise BenchError("The copy was stopped.", remedy="Run the benchmark again.")
        if report.refused or not times:
            table, why = next(iter(report.refused.items()), ("all tables", "no end was seen"))
            raise BenchError(
                f"Not everything was copied: {table}: {why}.",
                remedy="It is a bug of Penstock or of the benchmark.",
            )
        return CopyTimes(*times[-1], dict(report.rows), run_seconds)


@dataclass(frozen=True)
class JdbcJob:
    """`spark.read.jdbc` of what ``table`` is, in equal ranges of its ``id`` up to ``rows``, into
    the table ``into``, without it into Spark's sink that takes every row and keeps none. Its
    result is the seconds that it took.
    """

    url: str
    user: str
    table: str
    rows: int
    partitions: int
    into: str | None = None

    def run(
        self,
        session: SparkSession,
        _stopping: Callable[[], bool],
    ) -> float:
        began = time.monotonic()
        frame = session.read.jdbc(
            self.url,
            self.table,
            column="id",
            lowerBound=1,
            upperBound=self.rows + 1,
            numPartitions=self.partitions,
            properties={
                "user": self.user,
                "driver": "org.postgresql.Driver",
                "fetchsize": str(_FETCH_SIZE),
            },
        )
        if self.into is None:
            frame.write.format("noop").mode("overwrite").save()
        else:
            frame.writeTo(self.into).using("iceberg").createOrReplace()
        return time.monotonic() - began


@runtime_checkable
class Job(Protocol):
    """Something that is pickled to the session's process and run there."""

    def run(self, session: SparkSession, stopping: Callable[[], bool], /) -> Any: ...
