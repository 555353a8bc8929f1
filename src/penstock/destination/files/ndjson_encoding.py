"""Rows as NDJSON: the lines of docs/change_json.md, in a table with the one column ``line``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from penstock.decode.changes import MessageEvent, TableChanges, TruncateEvent
from penstock.destination.encode.ndjson import (
    message_line,
    read_lines,
    table_lines,
    truncate_line,
)
from penstock.model.table_rows import ChunkReader
from penstock.model.table_schema import TableSchema


class NdjsonEncoding:
    """See rows.Encoding."""

    suffix = ".ndjson"

    def changes(self, changes: TableChanges) -> pa.Table:
        return _table(table_lines(changes).text)

    def truncate(self, table: TableSchema, event: TruncateEvent) -> pa.Table:
        """The same line for each table, since it names all of them."""
        return _table(truncate_line(event).text)

    def messages(self, events: Sequence[MessageEvent]) -> pa.Table:
        return _table(pa.concat_arrays([message_line(event).text for event in events]))

    def copied(self, rows: ChunkReader) -> Iterator[pa.Table]:
        for piece in rows.texts():
            if len(piece):
                yield _table(read_lines(piece).text)


def _table(lines: pa.Array) -> pa.Table:
    return pa.table({"line": lines})
