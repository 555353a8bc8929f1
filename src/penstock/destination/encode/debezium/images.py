"""The rows before and after changes, column by column in the forms of their types."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.changes import TableChanges
from penstock.decode.row_values import Ints, Mask, RowValues
from penstock.destination.encode.debezium.form import Content
from penstock.destination.encode.debezium.table import TableForm
from penstock.destination.encode.json_values import TEXT, Part, joined, listed
from penstock.pgoutput import tuples

Column = Content | str
"""Values, or one token for all rows."""


def row_object(form: TableForm, columns: Sequence[Column], places: Sequence[int]) -> list[Part]:
    """``{…}`` with the columns at these places."""
    parts: list[Part] = []
    before = "{"
    for place in places:
        name, column = f"{before}{form.columns[place].name}:", columns[place]
        if isinstance(column, str):
            parts.append(name + column)
        elif column.quoted and not column.values.null_count:
            # A token is never made: the quotes go with the names around the values.
            parts += [f'{name}"', column.values, '"']
        else:
            parts += [name, column.tokens()]
        before = ","
    return [*parts, "}" if places else "{}"]


def row_keys(form: TableForm, columns: Sequence[Column], count: int) -> pa.Array:
    """The key of each row; null where the table has none."""
    if not form.key:
        return pa.nulls(count, TEXT)
    return joined([form.key_head, *row_object(form, columns, form.key), form.tail], count)


class NewImages:
    """The rows that inserts and updates leave, in the order of ``changes.new_rows``."""

    def __init__(self, form: TableForm, changes: TableChanges, values: RowValues) -> None:
        self._form = form
        self._changes = changes
        self._values = values
        self._unset: dict[int, Mask] = {}
        self.count = len(changes.new_rows)
        self.columns = [self._column(place) for place in range(len(form.columns))]

    @cached_property
    def keys(self) -> pa.Array:
        return row_keys(self._form, self.columns, self.count)

    def rows(self) -> list[Part]:
        return row_object(self._form, self.columns, range(len(self.columns)))

    def unset_names(self) -> pa.Array | None:
        """The names of the columns that nobody sent, as a JSON array; None where all were."""
        if not self._unset:
            return None
        names = [
            pc.if_else(
                pa.array(mask),
                pa.scalar("," + self._form.columns[place].name, TEXT),
                pa.scalar("", TEXT),
            )
            for place, mask in self._unset.items()
        ]
        some = np.logical_or.reduce(list(self._unset.values()))
        return pc.if_else(pa.array(some), listed(names, "[", "]"), pa.scalar(None, TEXT))

    def _column(self, place: int) -> Content:
        column, changes = self._form.columns[place], self._changes
        if not changes.new_unset(place).any():
            return column.write(changes.new_text(place))
        rows = changes.new_rows
        content = column.write(self._values.text(place).take(pa.array(rows)))
        unset = self._values.unset(place)
        if unset is None:
            return content
        self._unset[place] = unset[rows]
        placeholder = pa.scalar(column.unavailable, TEXT)
        return Content(pc.if_else(pa.array(unset[rows]), placeholder, content.tokens()))


class OldImages:
    """What Postgres sent of rows before their changes, in the order of ``changes.old_rows``."""

    def __init__(self, form: TableForm, changes: TableChanges, values: RowValues) -> None:
        self._form = form
        self._changes = changes
        self._values = values
        self.count = len(changes.old_rows)

    @cached_property
    def columns(self) -> list[Column]:
        return [self._column(place) for place in range(len(self._form.columns))]

    @cached_property
    def keys(self) -> pa.Array:
        return row_keys(self._form, self.columns, self.count)

    @cached_property
    def rows(self) -> pa.Array:
        parts = row_object(self._form, self.columns, range(len(self.columns)))
        return joined(parts, self.count)

    def moved(self) -> Mask:
        """Which images are of updates that gave their row another key."""
        changes = self._changes
        moved = np.zeros(self.count, bool)
        images = np.flatnonzero(changes.op[changes.old_rows] == tuples.UPDATE)
        if not len(images):
            return moved
        rows: Ints = changes.old_rows[images]
        for place in self._form.key:
            old = changes.old_text(place).take(pa.array(images))
            new = self._values.text(place).take(pa.array(rows))
            same = pc.fill_null(pc.equal(old, new), False).to_numpy(zero_copy_only=False)
            same |= (old.is_null().to_numpy(False)) & (new.is_null().to_numpy(False))
            moved[images] |= ~same & self._values.old_has(place)[images]
        return moved

    def _column(self, place: int) -> Column:
        column, has = self._form.columns[place], self._values.old_has(place)
        if not has.any():
            return column.absent
        content = column.write(self._changes.old_text(place))
        if has.all():
            return content
        absent = pa.scalar(column.absent, TEXT)
        return Content(pc.if_else(pa.array(has), content.tokens(), absent))
