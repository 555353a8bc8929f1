"""Spark jobs beside the stream: tasks that are known beforehand, each with its result."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.changelog.chain import Batch
from penstock.config.connection_url import ConnectionUrl
from penstock.destination.contract import ChunkReceipt, ChunkWriter, LanedWriter, TaskWriter
from penstock.failpoints import failpoint
from penstock.metrics.written import CopyResult, JobResult, Written, together
from penstock.model.error_transport import error_from_text, error_to_text
from penstock.model.errors import (
    PenstockError,
    SnapshotGone,
    TableRefused,
    TableRewritten,
)
from penstock.model.lsn import Frontier
from penstock.model.table_rows import ChunkReader
from penstock.model.table_schema import TableSchema
from penstock.source.postgres.snapshot.chunk import Chunk
from penstock.source.postgres.snapshot.chunk_reader import SourceChunkReader
from penstock.spark.jvm import jvm_needed
from penstock.spark.lanes import by_lanes
from penstock.spark.query import QueryFailed, first_lines
from penstock.spark.source import share_out
from penstock.spark.task import (
    ChangesOf,
    TaskFunction,
    TaskInput,
    job_result,
    marked_errors,
    metered,
)
from penstock.transform.filter import Filter
from penstock.transform.filtered_chunk import FilteredChunkReader
from penstock.transform.floors import Floors
from penstock.transform.section import Section

_SCHEMA = "place bigint, result binary, written string"
# What another attempt of the same task would only meet again.
_LASTING = (SnapshotGone, TableRewritten, TableRefused)

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


def run_replay(
    spark: SparkSession,
    log_path: str,
    buffer_bytes: int,
    wanted: Filter | None,
    batch: Batch,
    floors: Floors,
    writer: TaskWriter,
    section: Section | None = None,
) -> JobResult:
    """Write a batch of the log's changes for some tables."""
    began = time.monotonic()
    with jvm_needed():
        width = spark.sparkContext.defaultParallelism
    shares = share_out(batch.pointers, width)
    inputs = [TaskInput(log_path, share, batch.frontier, buffer_bytes) for share in shares if share]
    changes_of = ChangesOf(floors, wanted, section)
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


@dataclass(frozen=True)
class TableToCopy:
    """What an executor needs to know of a table whose chunks it copies."""

    table: TableSchema
    where: str | None
    writer: ChunkWriter


class _CopyChunks:
    """Copies chunks one after another; their receipts are the task's result."""

    def __init__(
        self,
        url: ConnectionUrl,
        snapshot_name: str,
        snapshot: Frontier,
        tables: Mapping[int, TableToCopy],
        wanted: Filter | None,
    ) -> None:
        self._filter = wanted
        self._url = url
        self._snapshot_name = snapshot_name
        self._snapshot = snapshot
        self._tables = tables

    def __call__(self, chunks: Sequence[Chunk]) -> Done:
        written = metered().written
        try:
            receipts = [self._copy(chunk, self._tables[chunk.table]) for chunk in chunks]
        except _LASTING as error:
            return error_to_text(error).encode(), written
        if self._filter is not None:
            written.filtered.update(self._filter.take_filtered())
        written.resent += sum(receipt.resent for receipt in receipts)
        result = json.dumps([[r.rows, r.bytes, r.content.hex()] for r in receipts])
        return result.encode(), written

    def _copy(self, chunk: Chunk, table: TableToCopy) -> ChunkReceipt:
        failpoint("copy.read")
        rows: ChunkReader = SourceChunkReader(
            self._url, table.table, chunk, table.where, self._snapshot_name, self._snapshot
        )
        if self._filter is not None:
            rows = FilteredChunkReader(rows, self._filter)
        receipt = table.writer.write(rows)
        failpoint("copy.written")
        return receipt


def run_copy(
    spark: SparkSession,
    url: ConnectionUrl,
    chunks: Sequence[Chunk],
    snapshot_name: str,
    snapshot: Frontier,
    tables: Mapping[int, TableToCopy],
    wanted: Filter | None,
) -> CopyResult:
    """Copy chunks in one task, straight from the source to the destination."""
    ((result, written),) = run_tasks(
        spark, [tuple(chunks)], _CopyChunks(url, snapshot_name, snapshot, tables, wanted)
    )
    if error := error_from_text(result.decode()):
        raise error
    receipts = [
        ChunkReceipt(rows, size, bytes.fromhex(content))
        for rows, size, content in json.loads(result)
    ]
    return CopyResult(receipts, written)
