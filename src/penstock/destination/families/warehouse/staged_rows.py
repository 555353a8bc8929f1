"""Net rows as a file holds them that a warehouse loads. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.destination.families.staged_merge.joined_rows import Ints, Mask, MergedRows
from penstock.destination.families.staged_merge.task_writer import PARK
from penstock.destination.families.target import Target
from penstock.destination.families.warehouse.checked_texts import CheckedTexts
from penstock.transform.net_rows import DELETE, INSERT

WORD = 63
"""How many columns a word has bits for."""
ROW = "row_"
"""The column of rows that have none."""
NEW, PUT, PARTIAL, GONE = "n", "w", "p", "g"
"""What a row does: it is new, comes whole in place of one, keeps what is unset, or goes."""


@dataclass(frozen=True)
class WarehouseRows:
    """``c…`` are columns, ``b…`` those of the key before, ``m…`` words of bits for unset columns;
    ``op`` is what a row does, ``place`` its number.

    Columns that no row needs are not there.
    """

    rows: pa.Table
    leaves: int = 0
    comes: int = 0
    partial: int = 0

    def types(self, target: Target, engine: CheckedTexts) -> tuple[tuple[str, str], ...]:
        """Each column and its type, as ``held_as`` names it."""
        return tuple((name, staged_type(name, target, engine)) for name in self.rows.column_names)


def staged_type(name: str, target: Target, engine: CheckedTexts) -> str:
    """The type of a staged column."""
    if name == "op":
        return "op"
    if name == ROW:
        return "bool"
    if name[0] in "cb":
        return engine.held_as(target.types[int(name[1:])])
    return "int8"


def mask_of(index: int) -> tuple[str, int]:
    """The word that says whether a column is unset, and its bit there."""
    return f"m{index // WORD}", 1 << index % WORD


def staged_rows(rows: MergedRows) -> WarehouseRows:
    """Rows of a table with a key; those that are parked whatever is there are left out."""
    is_parked = rows.op == PARK
    is_partial = rows.is_partial & ~is_parked & (rows.op != DELETE)
    is_gone = rows.op == DELETE
    op = np.full(len(rows.op), PUT)
    op[rows.op == INSERT] = NEW
    op[is_partial] = PARTIAL
    op[is_gone] = GONE
    columns = {
        f"c{index}": _null_where(is_gone, column) for index, column in enumerate(rows.columns)
    }
    is_new = op == NEW
    if not is_new.all():
        for index, before in zip(rows.target.key, rows.before, strict=True):
            columns[f"b{index}"] = _null_where(is_new, before)
        columns["op"] = pa.array(op, pa.string())
    if is_partial.any():
        columns |= _words(rows.unset, len(op))
        columns["place"] = pa.array(np.arange(len(op)))
    table = pa.table(columns).filter(pa.array(~is_parked))
    leaves = int((~is_new & ~is_parked).sum())
    comes = int(((is_new | (op == PUT)) & ~is_parked).sum())
    return WarehouseRows(table, leaves, comes, int(is_partial.sum()))


def counted_rows(rows: MergedRows, count: Ints) -> pa.Table:
    """Rows of a table without a key, each as often as ``count`` says."""
    pick = pa.array(np.repeat(np.arange(len(count)), count))
    if not rows.columns:
        return pa.table({ROW: pa.nulls(len(pick), pa.bool_())})
    return pa.table({f"c{index}": column.take(pick) for index, column in enumerate(rows.columns)})


def going_rows(rows: MergedRows) -> WarehouseRows:
    """Each row of which some go, once."""
    is_going = (rows.count < 0).astype(np.int64)
    place = pa.array(np.flatnonzero(is_going))
    return WarehouseRows(counted_rows(rows, is_going).append_column("place", place))


def _null_where(mask: Mask, column: pa.Array) -> pa.Array:
    if not mask.any():
        return column
    return pc.if_else(pa.array(mask), pa.scalar(None, column.type), column)


def _words(unset: Sequence[Mask | None], count: int) -> dict[str, pa.Array]:
    words: dict[str, np.ndarray] = {}
    for index, mask in enumerate(unset):
        if mask is not None:
            word = words.setdefault(f"m{index // WORD}", np.zeros(count, np.int64))
            word |= mask.astype(np.int64) << index % WORD
    return {name: pa.array(word) for name, word in words.items()}
