"""Rows as Parquet: flat rows, as Spark's own readers of the log get them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.decode.changes import MessageEvent, TableChanges, TruncateEvent
from penstock.decode.flat_columns import MESSAGE_SCHEMA, flat_table
from penstock.decode.flat_rows import (
    flat_changes,
    flat_truncate,
    row_columns,
    stamp_columns,
)
from penstock.decode.row_values import READ_ORDINAL
from penstock.model.table_rows import ChunkReader
from penstock.model.table_schema import TableSchema


class ParquetEncoding:
    """See rows.Encoding."""

    suffix = ".parquet"

    def changes(self, changes: TableChanges) -> pa.Table:
        return flat_changes(changes)

    def truncate(self, table: TableSchema, event: TruncateEvent) -> pa.Table:
        return flat_truncate(table, event)

    def messages(self, events: Sequence[MessageEvent]) -> pa.Table:
        columns = [
            pa.array([event.prefix for event in events], pa.string()),
            pa.array([event.content for event in events], pa.binary()),
            pa.array([event.transactional for event in events]),
            *stamp_columns("message", [event.stamp for event in events]),
        ]
        return pa.Table.from_arrays(columns, schema=MESSAGE_SCHEMA)

    def copied(self, rows: ChunkReader) -> Iterator[pa.Table]:
        """A chunk's typed rows have the columns of flat rows and ``_raw``; here come the others."""
        table = rows.table
        schema = flat_table(table).schema
        for batch in rows.typed():
            if count := batch.num_rows:
                *columns, raw = batch.columns
                columns += [
                    pa.repeat("read", count),
                    pa.repeat(pa.scalar(rows.snapshot.commit_lsn, pa.int64()), count),
                    pa.repeat(pa.scalar(READ_ORDINAL, pa.int64()), count),
                    pa.nulls(count, pa.int64()),
                    pa.nulls(count, pa.int64()),
                    pa.nulls(count, pa.timestamp("us", "UTC")),
                    *row_columns(table, count, raw),
                ]
                yield pa.Table.from_arrays(columns, schema=schema)
