"""Columns of images that somebody gave as Arrow arrays, beside those that are still bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.decode.image import Image, Mask, Owner, placed
from penstock.decode.typed import TypedColumn, decode_text
from penstock.model.errors import DecodeError
from penstock.model.table_schema import TableSchema
from penstock.pgoutput.tuples import Ints


@dataclass(frozen=True)
class Values:
    """A column of new or of old images: Postgres texts, null where ``unset``. ``unset`` None:
    nowhere.
    """

    text: pa.Array
    unset: Mask | None = None

    def pick(self, rows: Ints | slice) -> Values:
        unset = None if self.unset is None else self.unset[rows]
        if isinstance(rows, slice):
            return Values(self.text.slice(rows.start, rows.stop - rows.start), unset)
        return Values(self.text.take(pa.array(rows)), unset)


@dataclass(frozen=True)
class GivenColumn:
    """A column of changes: its values in their new images, and in their old ones."""

    new: Values
    old: Values


class GivenImage:
    """Images of one table's changes. Each column is given, or is one of ``rest``, whose columns are
    those of ``source``.
    """

    def __init__(
        self,
        table: TableSchema,
        columns: Sequence[Values | int],
        rest: Image,
        source: TableSchema,
    ) -> None:
        self._table = table
        self._columns = columns
        self._rest = rest
        self._source = source
        self._typed: dict[int, TypedColumn] = {}

    def text(self, column: int) -> pa.Array:
        given = self._columns[column]
        return self._rest.text(given) if isinstance(given, int) else given.text

    def typed(self, column: int) -> TypedColumn:
        given = self._columns[column]
        if isinstance(given, int):
            return self._rest.typed(given)
        if column not in self._typed:
            definition = self._table.columns[column]
            try:
                typed = decode_text(given.text, definition.type, definition.typmod)
            except DecodeError as error:
                raise placed(error, self._table, column) from None
            self._typed[column] = typed
        return self._typed[column]

    def unset(self, column: int) -> Mask:
        given = self._columns[column]
        if isinstance(given, int):
            return self._rest.unset(given)
        return np.zeros(len(given.text), bool) if given.unset is None else given.unset

    def lines(self, rows: slice) -> pa.Array | None:
        return None

    def pick(
        self, rows: Ints | slice, columns: Sequence[int] | None, owners: Sequence[Owner]
    ) -> GivenImage:
        chosen = self._columns if columns is None else [self._columns[c] for c in columns]
        picked = [given if isinstance(given, int) else given.pick(rows) for given in chosen]
        rest = self._rest.pick(rows, None, [(self._source, part) for _, part in owners])
        return GivenImage(owners[0][0], picked, rest, self._source)
