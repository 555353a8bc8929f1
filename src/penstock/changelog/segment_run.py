"""Runs of segments as one set of rows: few large pieces decode faster than many small ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from penstock.changelog.chain import Pointer
from penstock.changelog.changelog import ChangeLog
from penstock.changelog.segment import SCHEMA, Segment, place
from penstock.model.table_schema import TableSchema
from penstock.pgoutput.tuples import pad

# Enough for the fixed cost of a decode to vanish, small enough to bound a task's memory.
RUN_BYTES = 32 * 1024 * 1024
# Bytes of all payloads are counted in 32 bits.
_MOST_BYTES = 2**31 - 2**10


def read_runs(
    log: ChangeLog, pointers: Iterable[Pointer], run_bytes: int = RUN_BYTES
) -> Iterator[Segment]:
    """The rows that the pointers name, in order, several small segments at a time.

    A run ends with the segment that makes it reach ``run_bytes``: segments are read whole.
    """
    held: list[Segment] = []
    size = 0
    for pointer in pointers:
        piece = take(log.read(pointer.segment), pointer)
        if piece.rows.num_rows == 0:
            continue
        if held and size + pointer.size > _MOST_BYTES:
            yield join(held)
            held, size = [], 0
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
    tables: list[TableSchema] = []
    numbers: dict[TableSchema, int] = {}
    origins: dict[str, int] = {}
    batches = []
    for segment in segments:
        for table in segment.tables:
            if table not in numbers:
                numbers[table] = len(tables)
                tables.append(table)
        versions = [numbers[table] for table in segment.tables]
        origin_numbers = [origins.setdefault(origin, len(origins)) for origin in segment.origins]
        rows = _remap(segment.rows, "schema_version", versions, np.int32)
        if rows is not segment.rows:
            rows = _replace_truncates(rows, segment, tables)
        batches.append(_remap(rows, "origin", origin_numbers, np.int16))
    names = SCHEMA.names[:-1]
    (joined,) = pa.Table.from_batches(batches, SCHEMA).select(names).combine_chunks().to_batches()
    payload = _joined_payloads([batch.column("payload") for batch in batches])
    rows = pa.RecordBatch.from_arrays([*joined.columns, payload], schema=SCHEMA)
    return Segment(rows, tuple(tables), tuple(origins))


def _joined_payloads(payloads: list[pa.Array]) -> pa.Array:
    """All of them behind each other, with the room behind them that decoding wants: so the bytes
    need not be copied once more there.
    """
    offsets, pieces, size = [np.zeros(1, np.int32)], [], 0
    for payload in payloads:
        _, bounds, data = payload.buffers()
        own = np.frombuffer(bounds, np.int32)[payload.offset : payload.offset + len(payload) + 1]
        pieces.append(memoryview(data)[own[0] : own[-1]])
        offsets.append(own[1:] - own[0] + np.int32(size))
        size += len(pieces[-1])
    found = [None, pa.py_buffer(np.concatenate(offsets)), pa.py_buffer(pad(*pieces))]
    return pa.Array.from_buffers(pa.binary(), sum(map(len, payloads)), found)


def _replace_truncates(
    rows: pa.RecordBatch, segment: Segment, tables: list[TableSchema]
) -> pa.RecordBatch:
    """Let each Truncate of renumbered rows find its definitions side by side again."""
    truncates = np.flatnonzero(rows.column("op").to_numpy() == ord("T"))
    if not len(truncates):
        return rows
    version = rows.column("schema_version").to_numpy().copy()
    for row in truncates.tolist():
        first = segment.rows.column("schema_version")[row].as_py()
        count = int.from_bytes(rows.column("payload")[row].as_py()[1:5], "big")
        version[row] = place(tables, list(segment.tables[first : first + count]) if count else [])
    index = SCHEMA.get_field_index("schema_version")
    return rows.set_column(index, SCHEMA.field(index), pa.array(version))


def _remap(rows: pa.RecordBatch, name: str, numbers: list[int], kind: type) -> pa.RecordBatch:
    if numbers == list(range(len(numbers))):
        return rows
    index = SCHEMA.get_field_index(name)
    # The extra last entry stands for -1: NumPy counts it from the end.
    mapped = np.array([*numbers, -1], kind)[rows.column(index).to_numpy()]
    return rows.set_column(index, SCHEMA.field(index), pa.array(mapped))
