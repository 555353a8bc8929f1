"""Spark jobs: tasks that are known beforehand, each with its result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Generic, TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.changelog.chain import Pointer
from penstock.changelog.changelog import ChangeLog
from penstock.destination.contract import LanedWriter, TaskWriter
from penstock.metrics.written import CopyResult, JobResult, Written, together
from penstock.model.error_transport import error_from_text
from penstock.model.errors import PenstockError
from penstock.pipeline.copy.chunk_task import ChunkTask, copy_result
from penstock.pipeline.run.engine import TableToCopy
from penstock.source.contract import OpenChunk
from penstock.source.copy_plan import Chunk
from penstock.spark.jvm import jvm_needed
from penstock.spark.lanes import by_lanes
from penstock.spark.task import ChangesOf, WriteTask, metered
from penstock.spark.task_input import TaskInput, marked_errors
from penstock.transform.step import Step

Task = TypeVar("Task")
Done = tuple[bytes, Written]
"""A task's result, and what it did."""


class QueryFailed(PenstockError):
    """Spark ended a job for a reason of its own: a lost executor, a killed worker."""


class _Run(Generic[Task]):
    """What runs on an executor. Picklable if the function is."""

    def __init__(self, run: Callable[[Task], Done]) -> None:
        self._run = run

    def __call__(self, tasks: Iterable[Task]) -> Iterator[Done]:
        for task in tasks:
            with marked_errors():
                yield self._run(task)


def run_tasks(
    spark: SparkSession, tasks: Sequence[Task], run: Callable[[Task], Done]
) -> list[Done]:
    """Run each task on an executor; their results in the tasks' order. Raises what one raised.

    A plain job: where a batch is small, planning a query takes longer than all else.
    """
    if not tasks:
        return []
    with jvm_needed(), failures_told():
        context, places = spark.sparkContext, list(range(len(tasks)))
        # As mapPartitions and collect, without a closure of RDD's that the JVM would look through.
        return context.runJob(context.parallelize(tasks, len(tasks)), _Run(run), places)


@contextmanager
def failures_told() -> Iterator[None]:
    """Raise what a task raised, or QueryFailed."""
    try:
        yield
    except PySparkException as error:
        raise _reason(str(error)) from None
    except Py4JJavaError as error:
        raise _reason(error.java_exception.toString()) from None


def _reason(text: str) -> PenstockError:
    return error_from_text(text) or QueryFailed(first_lines(text))


def first_lines(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "the Spark job failed: " + " ".join(lines[:3])[:600]


@dataclass(frozen=True)
class LogReading:
    """How tasks read the change log."""

    log: ChangeLog
    buffer_bytes: int


def run_batch(
    spark: SparkSession,
    reading: LogReading,
    shares: Sequence[tuple[Pointer, ...]],
    steps: Sequence[Step],
    writer: TaskWriter,
) -> JobResult:
    """Write what ``steps`` leave of a batch of the log, a task a share."""
    began = time.monotonic()
    most = writer.most_changes if isinstance(writer, LanedWriter) else None
    inputs = [TaskInput(share, reading.buffer_bytes, most) for share in shares if share]
    changes_of = ChangesOf(reading.log, *steps)
    if isinstance(writer, LanedWriter) and len(inputs) > 1:
        with jvm_needed(), failures_told():
            rows = by_lanes(spark, inputs, writer, changes_of).collect()
        receipts = [bytes(row["receipt"]) for row in rows if row["receipt"] is not None]
        written = together(Written.from_json(row["written"]) for row in rows)
    else:
        done = run_tasks(spark, inputs, WriteTask(writer, changes_of))
        receipts = [receipt for receipt, _ in done]
        written = together(each for _, each in done)
    return JobResult(receipts, written, began, time.monotonic())


class _CopyChunks:
    """Copies chunks; the receipts are the task's result."""

    def __init__(self, task: ChunkTask) -> None:
        self._task = task

    def __call__(self, chunks: Sequence[Chunk]) -> Done:
        written = metered().written
        return self._task.run(chunks, written), written


def run_copy(
    spark: SparkSession,
    chunks: Sequence[Chunk],
    open_chunk: OpenChunk,
    tables: Mapping[int, TableToCopy],
    steps: Sequence[Step],
) -> CopyResult:
    """Copy chunks in one task, straight from the source to the destination."""
    copy = _CopyChunks(ChunkTask(open_chunk, tables, steps))
    ((result, written),) = run_tasks(spark, [tuple(chunks)], copy)
    return copy_result(result, written)
