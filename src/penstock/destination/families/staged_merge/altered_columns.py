"""What becomes of the rows of a table whose columns change, where they are written anew."""

from __future__ import annotations

from functools import cached_property

import pyarrow as pa

from penstock.destination.families.staged_merge.typed_columns import ColumnTyping, RowPlaces
from penstock.destination.families.target import Target
from penstock.model.array_text import first_element
from penstock.model.schema_change import TableChange


class RetypedColumns:
    """``kept`` are columns that were there before, under the name that they had; ``filled`` those
    that have a value in older rows.
    """

    def __init__(
        self, change: TableChange, before: Target, after: Target, typing: ColumnTyping
    ) -> None:
        self._after = after
        self._typing = typing
        self.kept: dict[str, str] = {}
        self.filled: dict[str, str] = {}
        for old, new in change.columns:
            if new is None or new.name not in after.columns:
                continue
            if old is not None and old.name in before.columns:
                self.kept[new.name] = old.name
            elif (text := first_element(new.missing)) is not None:
                self.filled[new.name] = text

    def of(self, rows: pa.RecordBatch | pa.Table, after: pa.Schema) -> list[pa.Array]:
        """The columns of older rows."""
        columns = []
        for field in after:
            if field.name in self.kept:
                columns.append(_cast(rows[self.kept[field.name]], field.type))
            elif field.name in self.filled:
                columns.append(pa.repeat(self._values[field.name], len(rows)).cast(field.type))
            else:
                columns.append(pa.nulls(len(rows), field.type))
        return columns

    @cached_property
    def _values(self) -> dict[str, pa.Scalar]:
        found = {}
        for name, text in self.filled.items():
            index = self._after.columns.index(name)
            values, _ = self._typing.column(self._after, index, pa.array([text]), RowPlaces())
            found[name] = values[0]
        return found


def _cast(values: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values of the new type; null where there is none: such a table is copied anew."""
    if values.type == kind:
        return values
    try:
        return values.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(values), kind)
