"""Images of row changes: what a column of them is, whoever made it, and the groups in which tables
share them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.decode.typed import TypedColumn
from penstock.model.errors import DecodeError
from penstock.model.table_schema import TableSchema
from penstock.pgoutput.tuples import Bytes, Ints

Mask = npt.NDArray[np.bool_]
Owner = tuple[TableSchema, slice]
"""A table and which of the images, or changes, are its own."""


class Image(Protocol):
    """New or old images of some rows: columns, of which nothing is made before it is asked for."""

    def text(self, column: int) -> pa.Array:
        """The column as Postgres text; null where it is null or unset."""

    def typed(self, column: int) -> TypedColumn:
        """The column in its Arrow type."""

    def unset(self, column: int) -> Mask:
        """Where the column was not sent because it did not change."""

    def lines(self, rows: slice) -> pa.Array | None:
        """Some of the images as lines of COPY, all columns in order; None where that is not to be
        had at once.
        """

    def pick(
        self, rows: Ints | slice, columns: Sequence[int] | None, owners: Sequence[Owner]
    ) -> Image:
        """Some of the images, with some of the columns or all. Nothing is decoded."""


@dataclass(frozen=True, eq=False)
class ImageGroup:
    """The images of all row changes of the tables that share one layout, ordered by table, then
    position. ``new_rows`` and ``old_rows`` say which changes have them.
    """

    op: Bytes
    new: Image
    new_rows: Ints
    old: Image
    old_rows: Ints
    old_is_full: Mask

    def take(self, rows: Ints, parts: Sequence[Owner]) -> ImageGroup:
        """A group of these changes alone, which are those of ``parts``. Nothing is decoded."""
        new_rows, new = _images_at(self.new_rows, rows)
        old_rows, old = _images_at(self.old_rows, rows)
        return ImageGroup(
            self.op[rows],
            self.new.pick(new, None, images_of(parts, new_rows)),
            new_rows,
            self.old.pick(old, None, images_of(parts, old_rows)),
            old_rows,
            self.old_is_full[old],
        )

    def cut(self, rows: slice, columns: Sequence[int], table: TableSchema) -> ImageGroup:
        """A group of these changes, which are the table's, with these columns alone."""
        new, old = within(self.new_rows, rows), within(self.old_rows, rows)
        return ImageGroup(
            self.op[rows],
            self.new.pick(new, columns, [(table, slice(0, new.stop - new.start))]),
            self.new_rows[new] - rows.start,
            self.old.pick(old, columns, [(table, slice(0, old.stop - old.start))]),
            self.old_rows[old] - rows.start,
            self.old_is_full[old],
        )


def within(of: Ints, rows: slice) -> slice:
    """Which entries of an ascending array lie in a range of rows."""
    first, last = np.searchsorted(of, [rows.start, rows.stop])
    return slice(int(first), int(last))


def images_of(parts: Sequence[Owner], image_rows: Ints) -> list[Owner]:
    return [(table, within(image_rows, rows)) for table, rows in parts]


def _images_at(image_rows: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Which of ``rows`` have an image, and which image it is."""
    if not len(image_rows):
        return image_rows, image_rows
    at = np.minimum(np.searchsorted(image_rows, rows), len(image_rows) - 1)
    has = np.flatnonzero(image_rows[at] == rows)
    return has, at[has]


def placed(error: DecodeError, table: TableSchema, column: int) -> DecodeError:
    """The same error, saying whose value it is."""
    place = f"table {table.qualified_name}, column {table.columns[column].name}"
    return DecodeError(f"{place}: {error.message}", remedy=error.remedy)
