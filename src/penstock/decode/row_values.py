"""One row for each change of a table, whatever images Postgres sent of it."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.decode.changes import TableChanges
from penstock.pgoutput import tuples

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

READ_ORDINAL = 2**32
"""The ordinal of copied rows: they stand after every change of the transaction they were read at.

No change has it, since a transaction counts its changes in 32 bits.
"""


class RowValues:
    """The row after each change; for a delete, what is known of the row that went.

    A column that was unset takes its value from the old image where that has it: unset means
    unchanged. That is always so under REPLICA IDENTITY FULL, and for a key that is TOASTed.
    """

    def __init__(self, changes: TableChanges) -> None:
        self._changes = changes
        self.is_delete: Mask = changes.op == tuples.DELETE

    def text(self, column: int) -> pa.Array:
        """Column ``column`` of every change as Postgres text; null where it is null or unset."""
        source, _ = self._source(column)
        new = self._changes.new_text(column)
        if source is None:
            return new
        return pa.concat_arrays([new, self._changes.old_text(column)]).take(pa.array(source))

    def unset(self, column: int) -> Mask | None:
        """Where nobody sent the column; None where it is always there. False for deletes."""
        return self._source(column)[1]

    def _source(self, column: int) -> tuple[Ints | None, Mask | None]:
        """Which image each change takes the column from, new ones counted before old ones.

        None stands for the new images as they are.
        """
        unset_images = self._changes.new_unset(column)
        if not unset_images.any():
            return self._plain_source, None
        unset = np.zeros(len(self._changes), bool)
        unset[self._changes.new_rows] = unset_images
        in_old = np.zeros(len(self._changes), bool)
        in_old[self._changes.old_rows] = self.old_has(column)
        fill = unset & in_old
        left = unset & ~fill
        source = self._plain_source
        if fill.any():
            source = np.where(fill, self._old_source, self._new_source)
            source[self.is_delete] = self._old_source[self.is_delete]
        return source, left if left.any() else None

    def old_has(self, column: int) -> Mask:
        """For each old image: whether it holds the column, be it null."""
        changes = self._changes
        is_key = changes.table.columns[column].is_key
        return (changes.old_is_full | is_key) & ~changes.old_unset(column)

    @cached_property
    def _plain_source(self) -> Ints | None:
        if not self.is_delete.any():
            return None
        return np.where(self.is_delete, self._old_source, self._new_source)

    @cached_property
    def _new_source(self) -> Ints:
        source = np.zeros(len(self._changes), np.int64)
        source[self._changes.new_rows] = np.arange(len(self._changes.new_rows))
        return source

    @cached_property
    def _old_source(self) -> Ints:
        source = np.zeros(len(self._changes), np.int64)
        first = len(self._changes.new_rows)
        source[self._changes.old_rows] = first + np.arange(len(self._changes.old_rows))
        return source
