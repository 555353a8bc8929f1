"""The pipeline's streaming query: one Spark job a micro-batch."""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from penstock.changelog.changelog import ChangeLog
from penstock.config.models import ChangeLogConfig
from penstock.destination.contract import LanedWriter
from penstock.metrics.written import JobResult
from penstock.model.error_transport import error_from_text
from penstock.model.errors import PenstockError
from penstock.model.lsn import Frontier
from penstock.pipeline.run.engine import QueryPart
from penstock.spark.jvm import JVM_GONE, jvm_needed, spark_lost
from penstock.spark.lanes import by_lanes
from penstock.spark.session import checkpoint_parent, checkpoint_prefix
from penstock.spark.task import (
    RECEIPT_SCHEMA,
    ChangesOf,
    TaskFunction,
    job_result,
)
from penstock.spark.task_width import task_width
from penstock.spark.wall_clock import WallClock
from penstock.transform.step import Step

_STOP_SECONDS = 15.0

_log = logging.getLogger(__name__)

Commit = Callable[[JobResult, Frontier], None]


@dataclass(frozen=True)
class QuerySettings:
    """What the pipeline file says about batches."""

    change_log: ChangeLogConfig
    max_bytes: int
    max_growth: int
    buffer_bytes: int
    interval_seconds: float
    delivery: str | None = None
    """Which of a pipeline's destinations it is for; None where there is one."""


class PipelineQuery:
    """Runs batches from ``start`` on until stopped; ``part.commit`` is called for each.

    While one batch is being committed, executors work on the next already: most destinations are
    busy with one, Spark with the other. Commits themselves come one after another, in order.
    Its checkpoint is made anew each time and thrown away: the destination knows where it stands.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: QuerySettings,
        start: Frontier,
        part: QueryPart,
        steps: Sequence[Step],
    ) -> None:
        self._part = part
        self._log = ChangeLog.of(settings.change_log)
        self._steps = steps
        self._read_up_to = start
        self._commits = _Commits(part.commit)
        self._batch_under_way = threading.Lock()
        self._stopping = threading.Event()
        self._has_run = threading.Event()
        self._clock = WallClock()
        self._checkpoint = _new_checkpoint(settings.change_log.path, settings.delivery)
        try:
            self._query = self._start(spark, settings, start)
        except JVM_GONE as error:
            self._commits.end()
            if isinstance(error, Py4JJavaError):
                # It lives, and says what is wrong.
                raise
            # It died while no query ran, or while this one was being made.
            raise spark_lost() from error
        except PySparkException as error:
            # What it says is asked of the JVM, which may end before a person reads it.
            self._commits.end()
            raise QueryFailed(first_lines(str(error))) from None

    def _start(
        self, spark: SparkSession, settings: QuerySettings, start: Frontier
    ) -> StreamingQuery:
        reader = spark.readStream.format("penstock")
        if self._part.feed is not None:
            reader = reader.option("feed", self._part.feed)
        if settings.delivery is not None:
            reader = reader.option("delivery", settings.delivery)
        stream = (
            reader.option("path", settings.change_log.path)
            .option("storageOptions", json.dumps(settings.change_log.revealed_options))
            .option("mode", "pointers")
            .option("start", json.dumps(start.to_json()))
            .option("maxBytesPerTrigger", str(settings.max_bytes))
            .option("maxGrowth", str(settings.max_growth))
            .option("bufferBytes", str(settings.buffer_bytes))
            .option("parallelism", str(task_width(spark)))
            .load()
        )
        return (
            stream.writeStream.foreachBatch(self._run_batch)
            .trigger(processingTime=f"{int(settings.interval_seconds * 1000)} milliseconds")
            .option("checkpointLocation", Path(self._checkpoint).as_uri())
            .start()
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def wait(self, seconds: float) -> bool:
        """Wait; True once the query has ended by itself, or another one has to take its place.
        Raises what made it end.
        """
        self._commits.check()
        try:
            with jvm_needed():
                # Documented for whole seconds, but takes parts of them as well.
                ended = self._query.awaitTermination(seconds)  # type: ignore[arg-type]
        except StreamingQueryException as error:
            raise self._reason(error) from None
        if back := self._clock.set_back():
            _log.warning(
                "the time of day was set back by %.0f s: Spark would begin its next batch so much "
                "later; a new query takes the place of this one",
                back,
                extra={"event": "clock_set_back"},
            )
            return True
        return bool(ended)

    @property
    def is_under_way(self) -> bool:
        """Whether it has come as far as reading. Before that, stopping it takes long, and Spark
        complains of what it was about to start.
        """
        if self._has_run.is_set():
            return True
        try:
            return str(self._query.status["message"]).startswith("Waiting for")
        except JVM_GONE:
            return True

    def stop(self) -> None:
        """End the query: what is under way is finished and committed, and none begins after it.

        One that takes too long is interrupted; then it leaves no trace. Spark alone would interrupt
        at once, and leave our callback running beside whatever comes next.
        """
        self._stopping.set()
        if self._batch_under_way.acquire(timeout=_STOP_SECONDS):
            # Spark may begin another batch until it is told: that one must find the way free.
            self._batch_under_way.release()
        try:
            self._query.stop()
        except JVM_GONE:
            pass
        finally:
            with self._batch_under_way:
                pass
            self._commits.end()
            shutil.rmtree(self._checkpoint, ignore_errors=True)

    def _run_batch(self, batch: DataFrame, _number: int) -> None:
        self._has_run.set()
        with self._batch_under_way:
            if self._stopping.is_set():
                return
            began = time.monotonic()
            try:
                floors = self._part.floors_at(self._read_up_to)
                writer = self._part.writer()
                changes_of = ChangesOf(self._log, floors, *self._steps)
                if isinstance(writer, LanedWriter) and _has_several_tasks(batch):
                    receipts_of = by_lanes(batch, writer, changes_of)
                else:
                    task = TaskFunction(writer, changes_of)
                    receipts_of = batch.mapInArrow(task, RECEIPT_SCHEMA)
                rows = receipts_of.collect()
            except Exception:
                if self._stopping.is_set():
                    return
                raise
            rows.sort(key=lambda row: row["first"])
            told = next(row["frontier"] for row in rows if row["frontier"])
            frontier = Frontier.from_json(json.loads(told))
            self._read_up_to = frontier
            self._commits.begin(job_result(rows, began), frontier)

    def _reason(self, error: StreamingQueryException) -> PenstockError:
        text = str(error)
        failure = self._commits.failure
        return failure or error_from_text(text) or QueryFailed(first_lines(text))


def _has_several_tasks(batch: DataFrame) -> bool:
    """Whether Spark will read the batch in parallel. Its plan is made already."""
    return int(batch._jdf.queryExecution().toRdd().getNumPartitions()) > 1


class _Commits:
    """One commit at a time, in a thread of its own. After one that failed there is no other."""

    def __init__(self, commit: Commit) -> None:
        self._commit = commit
        self._pool = ThreadPoolExecutor(1, "penstock-commit")
        self._under_way: Future[None] | None = None
        self.failure: PenstockError | None = None

    def begin(self, job: JobResult, frontier: Frontier) -> None:
        """Wait for the last commit, then begin this one. Raises what the last one raised."""
        if self._under_way is not None:
            self._under_way.result()
        self._under_way = self._pool.submit(self._run, job, frontier)

    def check(self) -> None:
        """Raise what made the last commit fail."""
        if self._under_way is not None and self._under_way.done():
            self._under_way.result()

    def end(self) -> None:
        """Wait until nothing is being committed."""
        self._pool.shutdown(wait=True)

    def _run(self, job: JobResult, frontier: Frontier) -> None:
        try:
            self._commit(job, frontier)
        except PenstockError as error:
            self.failure = error
            raise


class QueryFailed(PenstockError):
    """Spark ended the query for a reason of its own: a lost executor, a killed worker."""


def _new_checkpoint(log_path: str, delivery: str | None = None) -> str:
    """An empty folder. What killed drivers of this pipeline left of theirs goes: it is memory."""
    parent = Path(checkpoint_parent() or tempfile.gettempdir())
    prefix = checkpoint_prefix(log_path, delivery)
    for left in parent.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    return tempfile.mkdtemp(prefix=prefix, dir=parent)


def first_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "the Spark query failed: " + " ".join(lines[:3])[:600]
