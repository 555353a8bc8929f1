"""The values of row images in pgoutput's bytes: Postgres text, column by column, made when asked
for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from penstock.decode.image import Mask, Owner, placed
from penstock.decode.plain_lines import plain_lines
from penstock.decode.typed import TypedColumn, decode_text
from penstock.model.errors import DecodeError
from penstock.model.table_schema import PgType
from penstock.pgoutput import tuples
from penstock.pgoutput.tuples import Bytes, Ints, Tuples

Layout = tuple[tuple[PgType, int], ...]

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

    def lines(self, rows: slice) -> pa.Array | None:
        return plain_lines(self._data, _pick(self._columns, slice(None), rows))

    def pick(
        self, rows: Ints | slice, columns: Sequence[int] | None, owners: Sequence[Owner]
    ) -> TextImage:
        if columns is None:
            return TextImage(
                self._data, _pick(self._columns, slice(None), rows), self._layout, owners
            )
        picked = _pick(self._columns, np.array(columns, np.int64), rows)
        layout = tuple(self._layout[column] for column in columns)
        return TextImage(self._data, picked, layout, owners)

    def _at_once(self, column: int, values: pa.Array, work: Callable[[pa.Array], T]) -> T:
        """Do it for all tables together; where that fails, say whose values are wrong."""
        try:
            return work(values)
        except DecodeError:
            for table, part in self._owners:
                try:
                    work(values.slice(part.start, part.stop - part.start))
                except DecodeError as error:
                    raise placed(error, table, column) from None
            raise

    def _gather(self, column: int) -> pa.Array:
        kind = self._columns.kind[column]
        if (binary := kind == tuples.BINARY).any():
            error = DecodeError("a value came in binary form although text was asked for")
            table = next(table for table, part in self._owners if binary[part].any())
            raise placed(error, table, column)
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
