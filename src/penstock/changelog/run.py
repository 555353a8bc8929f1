"""Runs of segments as one set of rows: few large pieces decode faster than many small ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from penstock.changelog.chain import Pointer
from penstock.changelog.changelog import ChangeLog
from penstock.changelog.segment import SCHEMA, Segment
from penstock.table_schema import TableSchema

# Enough for the fixed cost of a decode to vanish, small enough to bound a task's memory.
RUN_BYTES = 32 * 1024 * 1024


def read_runs(
    log: ChangeLog, pointers: Iterable[Pointer], run_bytes: int = RUN_BYTES
) -> Iterator[Segment]:
    """The rows that the pointers name, in order, several small segments at a time."""
    held: list[Segment] = []
    size = 0
    for pointer in pointers:
        piece = take(log.read(pointer.segment), pointer)
        if piece.rows.num_rows == 0:
            continue
        held.append(piece)
        size += pointer.size
        if size >= run_bytes:
            yield join(held)
            held, size = [], 0
    if held:
        yield join(held)


def take(segment: Segment, pointer: Pointer) -> Segment:
    """The part of a segment that a pointer names. Rows stand in commit order."""
    commits = segment.rows.column("commit_lsn").to_numpy()
    first, last = np.searchsorted(
        commits, np.array([pointer.after, pointer.upto], np.uint64), "right"
    )
    return Segment(
        segment.rows.slice(int(first), int(last - first)), segment.tables, segment.origins
    )


def join(segments: list[Segment]) -> Segment:
    """Several segments as one, with each definition and origin once."""
    if len(segments) == 1:
        return segments[0]
    tables: dict[TableSchema, int] = {}
    origins: dict[str, int] = {}
    batches = []
    for segment in segments:
        # The extra last entry stands for -1: NumPy counts it from the end.
        versions = [tables.setdefault(table, len(tables)) for table in segment.tables]
        numbers = [origins.setdefault(origin, len(origins)) for origin in segment.origins]
        rows = segment.rows
        rows = _remap(rows, "schema_version", versions, np.int32)
        rows = _remap(rows, "origin", numbers, np.int16)
        batches.append(rows)
    joined = pa.Table.from_batches(batches, SCHEMA).combine_chunks().to_batches()
    return Segment(joined[0], tuple(tables), tuple(origins))


def _remap(rows: pa.RecordBatch, name: str, numbers: list[int], kind: type) -> pa.RecordBatch:
    if numbers == list(range(len(numbers))):
        return rows
    index = SCHEMA.get_field_index(name)
    mapped = np.array([*numbers, -1], kind)[rows.column(index).to_numpy()]
    return rows.set_column(index, SCHEMA.field(index), pa.array(mapped))
