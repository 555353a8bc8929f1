"""Batches of destinations that send lane by lane: encoded in parallel, then each lane in order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import chain

import pyarrow as pa
from pyspark.sql import DataFrame

from penstock.destination.contract import LanedWriter, LanePart
from penstock.failpoints import failpoint
from penstock.metrics.metered import Metered
from penstock.metrics.written import Written
from penstock.model.lsn import Position
from penstock.spark.task import (
    RECEIPT_SCHEMA,
    ChangesOf,
    metered,
    receipt_row,
    task_inputs,
)
from penstock.spark.task_input import TaskInput, marked_errors

_PART_SCHEMA = (
    "lane int, commit_lsn bigint, ordinal bigint, frontier string, content binary, written string"
)
_PART_ARROW = pa.schema(
    [
        ("lane", pa.int32()),
        ("commit_lsn", pa.int64()),
        ("ordinal", pa.int64()),
        ("frontier", pa.string()),
        ("content", pa.binary()),
        ("written", pa.string()),
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
            meter = metered()
            yield from self._parts(task, meter)
            # Also a batch without changes has a frontier. It is sorted before all parts.
            frontier = json.dumps(task.frontier.to_json())
            yield _row(0, -1, -1, frontier, None, meter.written.to_json())

    def _parts(self, task: TaskInput, meter: Metered) -> Iterator[pa.RecordBatch]:
        with marked_errors():
            for part in meter.parts(self._writer.encode(self._changes_of(task, meter))):
                yield _row(part.lane, *part.first, None, part.content, None)


class _Send:
    """The second stage: parts of lanes in, their receipts out; picklable."""

    def __init__(self, writer: LanedWriter) -> None:
        self._writer = writer

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        encoded: list[tuple[str, Written]] = []
        meter = metered()
        with marked_errors(), meter.stage("write"):
            parts = meter.timed("shuffle", self._parts(batches, encoded))
            first = next(parts, None)
            receipt = None if first is None else meter.sent(self._writer, chain([first], parts))
        failpoint("task.written")
        for frontier, written in encoded:
            yield receipt_row("", frontier, b"", written)
        if receipt is not None:
            yield receipt_row("sent", "", receipt, meter.written)

    def _parts(
        self, batches: Iterable[pa.RecordBatch], encoded: list[tuple[str, Written]]
    ) -> Iterator[LanePart]:
        for batch in batches:
            for row in range(len(batch)):
                lane, commit_lsn, ordinal, frontier, content, written = (
                    column[row].as_py() for column in batch.columns
                )
                if frontier is not None:
                    encoded.append((frontier, Written.from_json(written)))
                else:
                    yield LanePart(lane, Position(commit_lsn, ordinal), content)


def _row(
    lane: int,
    commit_lsn: int,
    ordinal: int,
    frontier: str | None,
    content: bytes | None,
    written: str | None,
) -> pa.RecordBatch:
    values = (lane, commit_lsn, ordinal, frontier, content, written)
    return pa.RecordBatch.from_arrays(
        [pa.array([v], field.type) for v, field in zip(values, _PART_ARROW, strict=True)],
        schema=_PART_ARROW,
    )
