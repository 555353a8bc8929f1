"""Batches of destinations that send lane by lane: encoded in parallel, then each lane in order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.destination.contract import LanedWriter, LanePart
from penstock.failpoints import failpoint
from penstock.lsn import Position
from penstock.spark.task import RECEIPT_SCHEMA, ChangesOf, TaskInput, marked_errors, task_inputs

_PART_SCHEMA = "lane int, commit_lsn bigint, ordinal bigint, frontier string, content binary"
_PART_ARROW = pa.schema(
    [
        ("lane", pa.int32()),
        ("commit_lsn", pa.int64()),
        ("ordinal", pa.int64()),
        ("frontier", pa.string()),
        ("content", pa.binary()),
    ]
)


def by_lanes(tasks: DataFrame, writer: LanedWriter, changes_of: ChangesOf) -> DataFrame:
    """The receipts of a batch whose tasks stand in the first column; one Spark job.

    What was encoded passes through Spark as few large values, which it only moves.
    """
    return (
        tasks.mapInArrow(_Encode(writer, changes_of), _PART_SCHEMA)
        .repartitionById(writer.lanes, "lane")
        .sortWithinPartitions("commit_lsn", "ordinal")
        .mapInArrow(_Send(writer), RECEIPT_SCHEMA)
    )


class _Encode:
    """The first stage: changes in, parts of lanes out; picklable."""

    def __init__(self, writer: LanedWriter, changes_of: ChangesOf) -> None:
        self._writer = writer
        self._changes_of = changes_of

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for task in task_inputs(batches):
            # Also a batch without changes has a frontier.
            yield _row(0, -1, -1, json.dumps(task.frontier.to_json()), None)
            yield from self._parts(task)

    def _parts(self, task: TaskInput) -> Iterator[pa.RecordBatch]:
        with marked_errors():
            for part in self._writer.encode(self._changes_of(task)):
                yield _row(part.lane, *part.first, None, part.content)


class _Send:
    """The second stage: parts of lanes in, their receipts out; picklable."""

    def __init__(self, writer: LanedWriter) -> None:
        self._writer = writer

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        frontiers: list[str] = []
        with marked_errors():
            parts = self._parts(batches, frontiers)
            first = next(parts, None)
            receipt = None if first is None else self._writer.send(chain([first], parts))
        failpoint("task.written")
        for frontier in frontiers:
            yield _receipt("", frontier, b"")
        if receipt is not None:
            yield _receipt("sent", "", receipt)

    def _parts(self, batches: Iterable[pa.RecordBatch], frontiers: list[str]) -> Iterator[LanePart]:
        for batch in batches:
            for row in range(len(batch)):
                lane, commit_lsn, ordinal, frontier, content = (
                    column[row].as_py() for column in batch.columns
                )
                if frontier is not None:
                    frontiers.append(frontier)
                else:
                    yield LanePart(lane, Position(commit_lsn, ordinal), content)


def _row(
    lane: int, commit_lsn: int, ordinal: int, frontier: str | None, content: bytes | None
) -> pa.RecordBatch:
    values = (lane, commit_lsn, ordinal, frontier, content)
    return pa.RecordBatch.from_arrays(
        [pa.array([v], field.type) for v, field in zip(values, _PART_ARROW, strict=True)],
        schema=_PART_ARROW,
    )


def _receipt(first: str, frontier: str, receipt: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(
        {"first": [first], "frontier": [frontier], "receipt": [receipt]}
    )
