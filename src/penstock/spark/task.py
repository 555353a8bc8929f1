"""What runs on an executor for each task of a batch: a share of the log in, a receipt out."""

from __future__ import annotations

from collections.abc import Iterator

from pyspark import TaskContext

from penstock.changelog.changelog import ChangeLog
from penstock.decode.changes import ChangeSet
from penstock.destination.contract import LanedWriter, Receipt, TaskWriter
from penstock.failpoints import failpoint
from penstock.metrics.metered import Metered
from penstock.metrics.written import Written
from penstock.spark.task_input import TaskInput, marked_errors
from penstock.transform.step import Step, filtered_by


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


class WriteTask:
    """Writes a task's share; picklable."""

    def __init__(self, writer: TaskWriter, changes_of: ChangesOf) -> None:
        self._writer = writer
        self._changes_of = changes_of

    def __call__(self, task: TaskInput) -> tuple[Receipt, Written]:
        meter = metered()
        with marked_errors(), meter.stage("write"):
            changes = self._changes_of(task, meter)
            if isinstance(self._writer, LanedWriter):
                receipt = meter.sent(self._writer, meter.parts(self._writer.encode_here(changes)))
            else:
                receipt = self._writer.write(changes)
        failpoint("task.written")
        return receipt, meter.written


def metered() -> Metered:
    """For the task that this process runs; knows how often Spark tried it before."""
    context = TaskContext.get()
    return Metered(0 if context is None else context.attemptNumber())
