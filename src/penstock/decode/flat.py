"""Changes as flat rows, one a change, for destinations and users that want columns.

A row shows the state after the change, or for a delete what Postgres sent of the deleted row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.decode.changes import TableChanges
from penstock.decode.typed import TypedColumn
from penstock.pgoutput.tuples import DELETE

Mask = npt.NDArray[np.bool_]

OP_NAMES = {"I": "insert", "U": "update", "D": "delete", "T": "truncate", "M": "message"}


def op_names(changes: TableChanges) -> pa.Array:
    """``insert``, ``update`` or ``delete`` for each change."""
    names = pa.array([OP_NAMES[letter] for letter in "IUD"])
    which = np.searchsorted(np.frombuffer(b"DIU", np.uint8), changes.op)
    return names.take(pa.array(np.array([2, 0, 1])[which]))


def text(changes: TableChanges, column: int) -> pa.Array:
    """A column as Postgres text; null also where it is unset, or not part of a delete's key."""
    return _merge(changes, changes.new_text(column), changes.old_text(column))


def typed(changes: TableChanges, column: int) -> TypedColumn:
    """A column in its Arrow type, with the marks of what that type cannot hold."""
    new, old = changes.new_typed(column), changes.old_typed(column)
    odd = None
    if new.unrepresentable is not None or old.unrepresentable is not None:
        odd = _merge(changes, _marks(new), _marks(old))
    return TypedColumn(_merge(changes, new.values, old.values), odd)


def raw(changes: TableChanges, columns: dict[int, TypedColumn]) -> pa.Array:
    """For each change, column → exact text, of the values that their Arrow type cannot hold.

    Null for a change without such values, which is nearly every one.
    """
    odd = {
        column: values.unrepresentable.to_numpy(zero_copy_only=False)
        for column, values in columns.items()
        if values.unrepresentable is not None
    }
    names = [changes.table.columns[column].name for column in odd]
    return text_map(
        names,
        lambda which: text(changes, list(odd)[which]),
        list(odd.values()),
        len(changes),
    )


def new_map(changes: TableChanges) -> pa.Array:
    """For each change, column → text of the new image, without unset columns; null for deletes."""
    count = len(changes.table.columns)
    present = [_spread(changes, changes.new_rows, ~changes.new_unset(c)) for c in range(count)]
    has_image = np.zeros(len(changes), bool)
    has_image[changes.new_rows] = True
    return text_map(
        _names(changes),
        lambda column: _place(changes.new_text(column), changes.new_rows, len(changes)),
        present,
        len(changes),
        has_image,
    )


def old_map(changes: TableChanges, *, with_deletes: bool = True) -> pa.Array:
    """For each change, column → text of the old image as far as Postgres sent it; else null.

    Without full images that is the replica identity's columns.
    """
    rows, full = changes.old_rows, changes.old_is_full
    wanted = np.ones(len(rows), bool) if with_deletes else changes.op[rows] != DELETE
    present = []
    for index, column in enumerate(changes.table.columns):
        sent = wanted & ~changes.old_unset(index)
        present.append(_spread(changes, rows, sent if column.is_key else sent & full))
    has_image = np.zeros(len(changes), bool)
    has_image[rows[wanted]] = True
    return text_map(
        _names(changes),
        lambda column: _place(changes.old_text(column), rows, len(changes)),
        present,
        len(changes),
        has_image,
    )


def unset_names(changes: TableChanges) -> pa.Array:
    """For each change the columns that were not sent because they did not change."""
    count = len(changes.table.columns)
    marks = [_spread(changes, changes.new_rows, changes.new_unset(c)) for c in range(count)]
    rows, which, offsets = _row_major(marks, len(changes))
    del rows
    names = pa.array(_names(changes), pa.string()).take(pa.array(which))
    return pa.ListArray.from_arrays(pa.array(offsets), names)


def text_map(
    names: Sequence[str],
    column_text: Callable[[int], pa.Array],
    present: Sequence[Mask],
    rows: int,
    has_map: Mask | None = None,
) -> pa.Array:
    """Maps name → text, one a row, of the columns that are present in that row.

    ``has_map`` says which rows have a map at all; by default those with something in it.
    """
    of_row, which, offsets = _row_major(present, rows)
    used = sorted(set(which.tolist()))
    place = np.zeros(max(used, default=0) + 1, np.int64)
    place[used] = np.arange(len(used))
    texts = [column_text(column) for column in used]
    values = pa.concat_arrays(texts) if texts else pa.array([], pa.string())
    items = values.take(pa.array(place[which] * rows + of_row)) if texts else values
    keys = pa.array(names, pa.string()).take(pa.array(which))
    if has_map is None:
        has_map = np.diff(offsets) > 0
    # A null offset makes a null map; the last offset must stay.
    absent = np.append(~has_map, False)
    return pa.MapArray.from_arrays(pa.array(offsets, mask=absent), keys, items)


def _row_major(
    present: Sequence[Mask], rows: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Row, column and offsets of all marks, row by row."""
    if not present:
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(rows + 1, np.int32)
    marks = np.array(present).T
    of_row, which = np.nonzero(marks)
    offsets = np.zeros(rows + 1, np.int32)
    np.cumsum(marks.sum(axis=1), out=offsets[1:])
    return of_row, which, offsets


def _merge(changes: TableChanges, new: pa.Array, old: pa.Array) -> pa.Array:
    """New images, and the old ones of deletes, in the order of the changes."""
    deletes = changes.op == DELETE
    if not deletes.any():
        return new
    index = np.empty(len(changes), np.int64)
    index[changes.new_rows] = np.arange(len(new))
    index[deletes] = len(new) + np.flatnonzero(deletes[changes.old_rows])
    return pa.concat_arrays([new, old]).take(pa.array(index))


def _place(values: pa.Array, rows: npt.NDArray[np.int64], count: int) -> pa.Array:
    """Values at their rows, null elsewhere."""
    index = np.zeros(count, np.int64)
    absent = np.ones(count, bool)
    index[rows] = np.arange(len(values))
    absent[rows] = False
    return values.take(pa.array(index, mask=absent))


def _spread(changes: TableChanges, rows: npt.NDArray[np.int64], marks: Mask) -> Mask:
    spread = np.zeros(len(changes), bool)
    spread[rows] = marks
    return spread


def _marks(column: TypedColumn) -> pa.Array:
    if column.unrepresentable is not None:
        return column.unrepresentable
    return pa.array(np.zeros(len(column.values), bool))


def _names(changes: TableChanges) -> list[str]:
    return [column.name for column in changes.table.columns]
