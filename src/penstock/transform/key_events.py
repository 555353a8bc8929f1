"""What some changes of a table leave under each key, taken for itself: for destinations in which a
change may find another row than the one that it changed.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.decode.changes import TableChanges
from penstock.decode.row_values import RowValues
from penstock.model.errors import DecodeError
from penstock.pgoutput import tuples
from penstock.transform.net_rows import old_key_text, text_codes

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


class KeyEvents:
    """What changes do to keys: each takes a row from one, or puts one there, or both. One entry a
    key: its last change decides.
    """

    def __init__(self, changes: TableChanges, key: Sequence[int]) -> None:
        self.key = key
        op, count = changes.op, len(changes)
        values = RowValues(changes)
        after = [values.text(column) for column in key]
        before = [old_key_text(changes, values, column) for column in key]
        moved = moves(changes, before, after)
        numbers = np.arange(count)
        takes, puts = numbers[(op == tuples.DELETE) | moved], numbers[op != tuples.DELETE]
        texts = [
            pa.concat_arrays([old.take(pa.array(takes)), new.take(pa.array(puts))])
            for old, new in zip(before, after, strict=True)
        ]
        codes = text_codes(texts, changes.table.qualified_name)
        change = np.concatenate([takes, puts])
        is_put = np.repeat([False, True], [len(takes), len(puts)])
        # By key and time. A change that moves a row takes it first.
        order = np.lexsort((is_put, change, codes))
        codes, is_put = codes[order], is_put[order]
        self._change = change[order]
        last = np.flatnonzero(np.append(codes[1:] != codes[:-1], True))
        # In order of the last change, as all staged rows are.
        last = last[np.argsort(self._change[last], kind="stable")]
        first = np.searchsorted(codes, codes[last])
        begins = is_put & ((op == tuples.INSERT) | moved)[self._change]
        begin = np.maximum.accumulate(np.where(begins, np.arange(len(codes)), -1))[last]
        self._last = last
        self._start = np.maximum(begin, first)
        self.change = self._change[last]
        """Which change decides what stands under each key."""
        self.is_put = is_put[last]
        """Whether it leaves a row there."""
        self.arrived = self.is_put & (begin >= first) & moved[self._change[self._start]]
        """Whether that row came from another key."""
        self.key_texts = [text.take(pa.array(order[last])) for text in texts]

    def last_sent(self, unset: Mask | None) -> tuple[Ints, Mask | None]:
        """Which change gives each key's row a column's value, and where none does."""
        if unset is None:
            return self.change, None
        places = np.where(unset[self._change], -1, np.arange(len(self._change)))
        latest = np.maximum.accumulate(places)[self._last]
        missing = (latest < self._start) & self.is_put
        pick = np.where(latest < self._start, self.change, self._change[latest])
        return pick, missing if missing.any() else None


def moves(changes: TableChanges, before: Sequence[pa.Array], after: Sequence[pa.Array]) -> Mask:
    """Which changes take a row from one key to another; ``before`` and ``after`` are its columns.

    Raises DecodeError where one of them is null.
    """
    moved = np.zeros(len(changes), bool)
    for old, new in zip(before, after, strict=True):
        same = pa.compute.equal(old, new)
        if same.null_count:
            raise DecodeError(
                f"table {changes.table.qualified_name}: a change came with a null in a column "
                "of the key",
                remedy="the key's columns must be NOT NULL at the source",
            )
        moved |= ~same.to_numpy(zero_copy_only=False)
    moved &= changes.op == tuples.UPDATE
    return moved
