"""What runs on an executor for each task of the pipeline: pointers in, a receipt out."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import Row

from penstock.changelog.changelog import ChangeLog
from penstock.decode.changes import ChangeSet
from penstock.destination.contract import LanedWriter, Receipt, TaskWriter
from penstock.failpoints import failpoint
from penstock.metrics.metered import Metered
from penstock.metrics.written import JobResult, Written, together
from penstock.spark.task_input import TaskInput, marked_errors
from penstock.transform.step import Step, filtered_by

RECEIPT_SCHEMA = "first string, frontier string, receipt binary, written string"
"""``written`` is what the task did, as Written has it in JSON."""

# Typed exceptions do not cross from a worker to the driver; their text does.


def task_inputs(batches: Iterable[pa.RecordBatch]) -> Iterator[TaskInput]:
    """The tasks that stand in the first column."""
    for batch in batches:
        yield from map(TaskInput.from_json, batch.column(0).to_pylist())


class ChangesOf:
    """What a task is to deliver of its share of ``log``; picklable."""

    def __init__(self, log: ChangeLog, *steps: Step | None) -> None:
        """``steps`` are taken in this order; None for one that there is not."""
        self._log = log
        self._steps = [step for step in steps if step is not None]

    def __call__(self, task: TaskInput, meter: Metered) -> Iterator[ChangeSet]:
        changes = task.changes(self._log)
        for step in self._steps:
            changes = map(step.apply, changes)
        return meter.changes(changes, lambda: filtered_by(self._steps))


class TaskFunction:
    """The function that mapInArrow runs; picklable."""

    def __init__(self, writer: TaskWriter, changes_of: ChangesOf) -> None:
        self._writer = writer
        self._changes_of = changes_of

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task in task_inputs(batches):
            receipt, written = self.write(task)
            first = task.pointers[0].segment if task.pointers else ""
            yield receipt_row(first, json.dumps(task.frontier.to_json()), receipt, written)

    def write(self, task: TaskInput) -> tuple[Receipt, Written]:
        if not task.pointers:
            return b"", Written()
        meter = metered()
        with marked_errors(), meter.stage("write"):
            changes = self._changes_of(task, meter)
            if isinstance(self._writer, LanedWriter):
                receipt = meter.sent(self._writer, meter.parts(self._writer.encode(changes)))
            else:
                receipt = self._writer.write(changes)
        failpoint("task.written")
        return receipt, meter.written


def receipt_row(first: str, frontier: str, receipt: Receipt, written: Written) -> pa.RecordBatch:
    """One row of ``RECEIPT_SCHEMA``."""
    return pa.RecordBatch.from_pydict(
        {
            "first": [first],
            "frontier": [frontier],
            "receipt": [receipt],
            "written": [written.to_json()],
        }
    )


def job_result(rows: Sequence[Row], began: float) -> JobResult:
    """What a job left, from the rows of ``RECEIPT_SCHEMA`` that it gave, now that it has ended."""
    return JobResult(
        [bytes(row["receipt"]) for row in rows if row["first"]],
        together(Written.from_json(row["written"]) for row in rows),
        began,
        time.monotonic(),
    )


def metered() -> Metered:
    """For the task that this process runs; knows how often Spark tried it before."""
    context = TaskContext.get()
    return Metered(0 if context is None else context.attemptNumber())
