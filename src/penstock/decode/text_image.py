"""The values of some row images as Postgres text, column by column, made when asked for, and the
groups in which tables share them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.decode.typed import TypedColumn, decode_text
from penstock.model.errors import DecodeError
from penstock.model.table_schema import PgType, TableSchema
from penstock.pgoutput import tuples
from penstock.pgoutput.tuples import Bytes, Ints, RowTuples, Tuples

Mask = npt.NDArray[np.bool_]
Layout = tuple[tuple[PgType, int], ...]
Owner = tuple[TableSchema, slice]
"""A table and which of the images, or changes, are its own."""

T = TypeVar("T")


class TextImage:
    """New or old images of some rows of the tables that share one layout."""

    def __init__(
        self, data: Bytes, columns: Tuples, layout: Layout, owners: Sequence[Owner]
    ) -> None:
        self._data = data
        self._columns = columns
        self._layout = layout
        self._owners = owners
        self._text: dict[int, pa.Array] = {}
        self._typed: dict[int, TypedColumn] = {}

    def text(self, column: int) -> pa.Array:
        """Column ``column`` as Postgres text; null where it is null or unset."""
        if column not in self._text:
            self._text[column] = self._at_once(column, self._gather(column), _valid_text)
        return self._text[column]

    def typed(self, column: int) -> TypedColumn:
        """Column ``column`` in its Arrow type."""
        if column not in self._typed:
            kind, typmod = self._layout[column]
            self._typed[column] = self._at_once(
                column, self.text(column), lambda text: decode_text(text, kind, typmod)
            )
        return self._typed[column]

    def unset(self, column: int) -> Mask:
        """Where column ``column`` was not sent because it did not change."""
        unset: Mask = self._columns.kind[column] == tuples.UNSET
        return unset

    def _at_once(self, column: int, values: pa.Array, work: Callable[[pa.Array], T]) -> T:
        """Do it for all tables together; where that fails, say whose values are wrong."""
        try:
            return work(values)
        except DecodeError:
            for table, part in self._owners:
                try:
                    work(values.slice(part.start, part.stop - part.start))
                except DecodeError as error:
                    raise _placed(error, table, column) from None
            raise

    def _gather(self, column: int) -> pa.Array:
        kind = self._columns.kind[column]
        if (binary := kind == tuples.BINARY).any():
            error = DecodeError("a value came in binary form although text was asked for")
            table = next(table for table, part in self._owners if binary[part].any())
            raise _placed(error, table, column)
        start, length = self._columns.start[column], self._columns.length[column]
        count = len(kind)
        # Pieces of the payload that are alternately not ours and ours; take only ours.
        offsets = np.zeros(2 * count + 1, np.int32)
        offsets[1::2] = start
        offsets[2::2] = start + length
        pieces = pa.Array.from_buffers(
            pa.string(), 2 * count, [None, pa.py_buffer(offsets), pa.py_buffer(self._data)]
        )
        absent = kind != tuples.TEXT
        which = pa.array(np.arange(1, 2 * count, 2), mask=absent if absent.any() else None)
        return pieces.take(which)


class ImageGroup:
    """The images of all row changes of the tables that share one layout, ordered by table, then
    position.

    ``parts`` says which changes are whose.
    """

    def __init__(
        self, data: Bytes, op: Bytes, images: RowTuples, layout: Layout, parts: Sequence[Owner]
    ) -> None:
        self.op = op
        self.new_rows, self.old_rows = images.new_rows, images.old_rows
        self.old_is_full = images.old_is_full
        self.new = TextImage(data, images.new, layout, _images_of(parts, images.new_rows))
        self.old = TextImage(data, images.old, layout, _images_of(parts, images.old_rows))
        self._data, self._images, self._layout = data, images, layout

    def take(self, rows: Ints, parts: Sequence[Owner]) -> ImageGroup:
        """A group of these changes alone. Nothing is decoded."""
        new_rows, new = _images_at(self.new_rows, rows)
        old_rows, old = _images_at(self.old_rows, rows)
        images = RowTuples(
            new=_pick(self._images.new, slice(None), new),
            new_rows=new_rows,
            old=_pick(self._images.old, slice(None), old),
            old_rows=old_rows,
            old_is_full=self.old_is_full[old],
        )
        return ImageGroup(self._data, self.op[rows], images, self._layout, parts)

    def select(self, rows: slice, columns: Sequence[int], table: TableSchema) -> ImageGroup:
        """A group of these changes, which are one table's, with fewer columns: those that
        ``table`` has.
        """
        new, old = within(self.new_rows, rows), within(self.old_rows, rows)
        numbers = np.array(columns, np.int64)
        images = RowTuples(
            new=_pick(self._images.new, numbers, new),
            new_rows=self.new_rows[new] - rows.start,
            old=_pick(self._images.old, numbers, old),
            old_rows=self.old_rows[old] - rows.start,
            old_is_full=self.old_is_full[old],
        )
        layout = tuple(self._layout[column] for column in columns)
        every = slice(0, rows.stop - rows.start)
        return ImageGroup(self._data, self.op[rows], images, layout, [(table, every)])


def within(of: Ints, rows: slice) -> slice:
    """Which entries of an ascending array lie in a range of rows."""
    first, last = np.searchsorted(of, [rows.start, rows.stop])
    return slice(int(first), int(last))


def _images_of(parts: Sequence[Owner], image_rows: Ints) -> list[Owner]:
    return [(table, within(image_rows, rows)) for table, rows in parts]


def _images_at(image_rows: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Which of ``rows`` have an image, and which image it is."""
    if not len(image_rows):
        return image_rows, image_rows
    at = np.minimum(np.searchsorted(image_rows, rows), len(image_rows) - 1)
    has = np.flatnonzero(image_rows[at] == rows)
    return has, at[has]


def _pick(images: Tuples, columns: Ints | slice, rows: Ints | slice) -> Tuples:
    return Tuples(
        kind=images.kind[:, rows][columns],
        start=images.start[:, rows][columns],
        length=images.length[:, rows][columns],
    )


def _valid_text(values: pa.Array) -> pa.Array:
    try:
        values.validate(full=True)
    except pa.ArrowInvalid as error:
        raise DecodeError(
            f"a text value is not valid UTF-8 ({error})",
            remedy="a database with encoding SQL_ASCII can hold such bytes; "
            "convert the column to bytea, or clean the value",
        ) from None
    return values


def _placed(error: DecodeError, table: TableSchema, column: int) -> DecodeError:
    place = f"table {table.qualified_name}, column {table.columns[column].name}"
    return DecodeError(f"{place}: {error.message}", remedy=error.remedy)
