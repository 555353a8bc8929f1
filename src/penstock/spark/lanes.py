"""Batches of destinations that send lane by lane: encoded in parallel, then each lane in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from penstock.destination.contract import LanedWriter, LanePart
from penstock.failpoints import failpoint
from penstock.metrics.metered import Metered
from penstock.model.lsn import Position
from penstock.spark.task import ChangesOf, metered
from penstock.spark.task_input import TaskInput, marked_errors

_RECEIPTS = "receipt binary, written string"
"""``written`` is what a task did, as Written has it in JSON; who only encodes has no receipt."""
_PARTS = "lane int, commit_lsn bigint, ordinal bigint, content binary, written string"
_PART_ARROW = pa.schema(
    [
        ("lane", pa.int32()),
        ("commit_lsn", pa.int64()),
        ("ordinal", pa.int64()),
        ("content", pa.binary()),
        ("written", pa.string()),
    ]
)


def by_lanes(
    spark: SparkSession, tasks: Sequence[TaskInput], writer: LanedWriter, changes_of: ChangesOf
) -> DataFrame:
    """The receipts of a batch; one Spark job.

    What was encoded passes through Spark as few large values, which it only moves.
    """
    return (
        spark.range(0, len(tasks), 1, len(tasks))
        .mapInArrow(_Encode(tasks, writer, changes_of), _PARTS)
        .repartitionById(writer.lanes, "lane")
        .sortWithinPartitions("commit_lsn", "ordinal")
        .mapInArrow(_Send(writer), _RECEIPTS)
    )


class _Encode:
    """The first stage: places of tasks in, parts of lanes out; picklable."""

    def __init__(
        self, tasks: Sequence[TaskInput], writer: LanedWriter, changes_of: ChangesOf
    ) -> None:
        self._tasks = tasks
        self._writer = writer
        self._changes_of = changes_of

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for place in batch.column(0).to_pylist():
                meter = metered()
                yield from self._parts(self._tasks[place], meter)
                # Sorted before all parts.
                yield _row(0, -1, -1, None, meter.written.to_json())

    def _parts(self, task: TaskInput, meter: Metered) -> Iterator[pa.RecordBatch]:
        with marked_errors():
            for part in meter.parts(self._writer.encode(self._changes_of(task, meter))):
                yield _row(part.lane, *part.first, part.content, None)


class _Send:
    """The second stage: parts of lanes in, their receipts out; picklable."""

    def __init__(self, writer: LanedWriter) -> None:
        self._writer = writer

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        encoded: list[str] = []
        meter = metered()
        with marked_errors(), meter.stage("write"):
            parts = meter.timed("shuffle", self._parts(batches, encoded))
            first = next(parts, None)
            receipt = None if first is None else meter.sent(self._writer, chain([first], parts))
        failpoint("task.written")
        yield _receipts(
            [(None, written) for written in encoded]
            + ([] if receipt is None else [(receipt, meter.written.to_json())])
        )

    def _parts(self, batches: Iterable[pa.RecordBatch], encoded: list[str]) -> Iterator[LanePart]:
        for batch in batches:
            for row in range(len(batch)):
                lane, commit_lsn, ordinal, content, written = (
                    column[row].as_py() for column in batch.columns
                )
                if written is not None:
                    encoded.append(written)
                else:
                    yield LanePart(lane, Position(commit_lsn, ordinal), content)


def _receipts(rows: Sequence[tuple[bytes | None, str]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [
            pa.array([receipt for receipt, _ in rows], pa.binary()),
            pa.array([written for _, written in rows], pa.string()),
        ],
        names=["receipt", "written"],
    )


def _row(
    lane: int, commit_lsn: int, ordinal: int, content: bytes | None, written: str | None
) -> pa.RecordBatch:
    values = (lane, commit_lsn, ordinal, content, written)
    return pa.RecordBatch.from_arrays(
        [pa.array([v], field.type) for v, field in zip(values, _PART_ARROW, strict=True)],
        schema=_PART_ARROW,
    )
