"""Events with a version of their own beside their position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.changes import MessageEvent, TableChanges, TruncateEvent
from penstock.decode.row_values import RowValues
from penstock.destination.contract import SchemaChange
from penstock.destination.encode.json_values import TEXT, escaped, join
from penstock.destination.encode.messages import EventFormat, Messages
from penstock.destination.families.queue.finders import VersionFinder
from penstock.model.errors import DestinationError
from penstock.model.schema_change import TableChange
from penstock.model.table_rows import TableRows
from penstock.model.table_schema import TableSchema

VERSION = "penstock.version"
"""The header that has it."""


@dataclass(frozen=True)
class VersionedFormat(EventFormat):
    """Another format whose events of rows have the versions that ``find`` gives, as a header; with
    ``in_events`` their objects have the key ``version``, too. Other events have none.
    """

    inner: EventFormat
    find: VersionFinder
    in_events: bool

    def changes(self, changes: TableChanges) -> Messages:
        values = RowValues(changes)
        columns = [values.text(place) for place in range(len(changes.table.columns))]
        return self._with(self.inner.changes(changes), changes.table, columns)

    def copied(self, rows: TableRows) -> Messages:
        return self._with(self.inner.copied(rows), rows.table, rows.columns)

    def truncate(self, event: TruncateEvent) -> Sequence[Messages]:
        return self.inner.truncate(event)

    def message(self, event: MessageEvent) -> Messages:
        return self.inner.message(event)

    def schema_change(self, change: SchemaChange) -> Sequence[tuple[TableChange, Messages]]:
        return self.inner.schema_change(change)

    def _with(self, made: Messages, table: TableSchema, columns: Sequence[pa.Array]) -> Messages:
        names = [column.name for column in table.columns]
        rows = pa.RecordBatch.from_arrays(list(columns), names)
        found = self.find(table, rows)
        if len(found) != len(rows):
            raise DestinationError(
                f"destination.version: the finder gave {len(found)} versions for {len(rows)} "
                f"events of table {table.qualified_name}",
                remedy="let it return one value a row, null where a row has no version",
            )
        versions = found.cast(TEXT).take(pa.array(made.row))
        value = _with_member(made.value, versions) if self.in_events else made.value
        return replace(made, value=value, headers=[*made.headers, (VERSION, versions)])


def _with_member(objects: pa.Array, versions: pa.Array) -> pa.Array:
    """The same objects with one member more."""
    opened = pc.binary_slice(objects.cast(pa.large_binary()), 0, -1).cast(TEXT)
    texts = pc.fill_null(join('"', escaped(versions), '"'), "null")
    return join(opened, ',"version":', texts, "}")
