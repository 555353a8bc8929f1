"""Spark as the engine of a pipeline."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Self

from pyspark.sql import SparkSession

from penstock.changelog.chain import Batch
from penstock.changelog.changelog import ChangeLog
from penstock.config.models import PipelineConfig
from penstock.destination.contract import LanedWriter, TaskWriter
from penstock.metrics.written import CopyResult, JobResult
from penstock.pipeline.run.engine import Engine, MakeEngine, TableToCopy
from penstock.source.contract import OpenChunk
from penstock.source.copy_plan import Chunk
from penstock.spark.early_session import EarlySession, early_session
from penstock.spark.jobs import LogReading, run_batch, run_copy
from penstock.spark.jvm import JVM_GONE, jvm_needed, spark_lost
from penstock.spark.session import end_session, start_session
from penstock.spark.source import share_out
from penstock.spark.task_width import TaskWidth
from penstock.spark.worker_time import executor_count, local_jvm, workers_time
from penstock.transform.floors import Floors
from penstock.transform.section import Section
from penstock.transform.step import Step


@contextmanager
def starting_engine(config: PipelineConfig) -> Iterator[MakeEngine]:
    """What makes the engine of one run, whose session starts now. `penstock run` opens it, and does
    all else meanwhile.
    """
    with early_session(config.delivery, config.spark) as early:
        yield partial(SparkEngine, early=early)


class SparkEngine(Engine):
    """Starts a session as the pipeline file wants it. One that is given is left running."""

    def __init__(
        self,
        config: PipelineConfig,
        steps: Sequence[Step],
        *,
        session: SparkSession | None = None,
        early: EarlySession | None = None,
    ) -> None:
        """``early`` is the one to take, where it was begun before."""
        self._config = config
        self._steps = steps
        self._given = session
        self._early = early
        self._reading = LogReading(ChangeLog.of(config.change_log), config.batch.buffer_bytes)
        self._session: SparkSession
        self._width: TaskWidth
        self._jvm: int | None = None
        self._lock = threading.Lock()
        self._batches = 0
        """How many are being written at the moment."""

    def __enter__(self) -> Self:
        if self._given is not None:
            self._session = self._given
        elif self._early is not None:
            self._session = self._early.take()
        else:
            self._session = start_session(self._config.delivery, self._config.spark)
        with jvm_needed():
            self._width = TaskWidth(self._session.sparkContext)
            self._jvm = local_jvm(self._session.sparkContext)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._given is None:
            end_session(self._session)

    @property
    def parallelism(self) -> int:
        with jvm_needed():
            return self._width.now()

    def check(self) -> None:
        with jvm_needed():
            if self._session.sparkContext._jsc.sc().isStopped():
                raise spark_lost()

    @property
    def batch_work(self) -> int | None:
        """Processor time of Python workers, where they run on this machine. Work of a copy counts,
        too; a copy alone is not looked at, since the source may search long for its first row.
        """
        return workers_time(self._jvm) if self._batches and self._jvm is not None else None

    @property
    def lacks_executors(self) -> bool:
        return bool(self._batches) and executor_count(self._session.sparkContext) == 0

    @contextmanager
    def cancellable(self) -> Iterator[Callable[[], None]]:
        context, group = self._session.sparkContext, uuid.uuid4().hex
        with jvm_needed():
            context.setJobGroup(group, "batches of the stream")

        def cancel() -> None:
            with suppress(*JVM_GONE):
                context.cancelJobGroup(group)

        yield cancel

    def write_batch(
        self, batch: Batch, floors: Floors, writer: TaskWriter, section: Section | None = None
    ) -> JobResult:
        own = (floors,) if section is None else (floors, section)
        steps = (*own, *self._steps)
        shares = share_out(batch.pointers, self._width_for(writer))
        with self._writing_batch():
            return run_batch(self._session, self._reading, shares, steps, writer)

    @contextmanager
    def _writing_batch(self) -> Iterator[None]:
        with self._lock:
            self._batches += 1
        try:
            yield
        finally:
            with self._lock:
                self._batches -= 1

    def _width_for(self, writer: TaskWriter) -> int:
        if isinstance(writer, LanedWriter) and writer.in_one_task:
            is_quick = not any(step.is_slow for step in self._steps)
            return 1 if is_quick else self.parallelism
        return self.parallelism

    def copy_chunks(
        self, chunks: Sequence[Chunk], open_chunk: OpenChunk, tables: Mapping[int, TableToCopy]
    ) -> CopyResult:
        return run_copy(self._session, chunks, open_chunk, tables, self._steps)
