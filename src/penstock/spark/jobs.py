"""Spark jobs beside the stream: tasks that are known beforehand, each with its result."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.changelog.chain import Batch
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
from penstock.spark.query import QueryFailed, first_lines
from penstock.spark.source import share_out
from penstock.spark.task import (
    ChangesOf,
    TaskFunction,
    job_result,
    metered,
)
from penstock.spark.task_input import TaskInput, marked_errors
from penstock.spark.task_width import task_width
from penstock.transform.step import Step

_SCHEMA = "place bigint, result binary, written string"

Task = TypeVar("Task")
Done = tuple[bytes, Written]
"""A task's result, and what it did."""


class _Tasks(Generic[Task]):
    """What runs on an executor: the tasks whose places come in. Picklable if the task is."""

    def __init__(self, tasks: Sequence[Task], run: Callable[[Task], Done]) -> None:
        self._tasks = tasks
        self._run = run

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in batch.column(0).to_pylist():
                with marked_errors():
                    result, written = self._run(self._tasks[place])
                yield pa.RecordBatch.from_pydict(
                    {"place": [place], "result": [result], "written": [written.to_json()]}
                )


def run_tasks(
    spark: SparkSession, tasks: Sequence[Task], run: Callable[[Task], Done]
) -> list[Done]:
    """Run each task on an executor; their results in the tasks' order. Raises what one raised."""
    if not tasks:
        return []
    try:
        with jvm_needed():
            places = spark.range(0, len(tasks), 1, len(tasks))
            rows = places.mapInArrow(_Tasks(tasks, run), _SCHEMA).collect()
    except PySparkException as error:
        raise _reason(str(error)) from None
    rows.sort(key=lambda row: int(row["place"]))
    return [(bytes(row["result"]), Written.from_json(row["written"])) for row in rows]


def _reason(text: str) -> PenstockError:
    return error_from_text(text) or QueryFailed(first_lines(text))


class _Replay:
    """Writes one task's share of a replay."""

    def __init__(self, function: TaskFunction) -> None:
        self._function = function

    def __call__(self, task: TaskInput) -> Done:
        return self._function.write(task)


@dataclass(frozen=True)
class LogReading:
    """How tasks read the change log."""

    log: ChangeLog
    buffer_bytes: int


def run_batch(
    spark: SparkSession,
    reading: LogReading,
    batch: Batch,
    steps: Sequence[Step],
    writer: TaskWriter,
) -> JobResult:
    """Write what ``steps`` leave of a batch of the log."""
    began = time.monotonic()
    with jvm_needed():
        width = task_width(spark)
    shares = share_out(batch.pointers, width)
    inputs = [TaskInput(share, batch.frontier, reading.buffer_bytes) for share in shares if share]
    changes_of = ChangesOf(reading.log, *steps)
    if isinstance(writer, LanedWriter) and len(inputs) > 1:
        return _run_lanes(spark, inputs, writer, changes_of)
    done = run_tasks(spark, inputs, _Replay(TaskFunction(writer, changes_of)))
    receipts = [receipt for receipt, _ in done]
    return JobResult(receipts, together(w for _, w in done), began, time.monotonic())


def _run_lanes(
    spark: SparkSession, inputs: Sequence[TaskInput], writer: LanedWriter, changes_of: ChangesOf
) -> JobResult:
    began = time.monotonic()
    try:
        with jvm_needed():
            texts = [(task.to_json(),) for task in inputs]
            tasks = spark.createDataFrame(texts, "task string").repartition(len(texts))
            rows = by_lanes(tasks, writer, changes_of).collect()
    except PySparkException as error:
        raise _reason(str(error)) from None
    return job_result(rows, began)


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
