"""Changes that come over copied rows, as the columns of a staging table.

A table whose chunks were read under several snapshots holds rows of different times, so what a
change finds there need not be the row that it changed. Hence nothing is carried from key to key:
each key is taken for itself, and its last change decides. It leaves no row, or a whole one, or one
with unset columns. If that one never left the key, the columns are those of the row that stands
there; if it came from another key, nobody here knows them, and the key is parked.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.decode.changes import TableChanges
from penstock.decode.row_values import RowValues
from penstock.destination.postgres.staging.receipt import Part
from penstock.destination.postgres.staging.stage import Stage
from penstock.destination.postgres.staging.staged_rows import (
    StagedRows,
    array_texts,
    known_columns,
    letters,
    op_name,
)
from penstock.model.errors import DecodeError
from penstock.pgoutput import tuples
from penstock.transform.net_rows import DELETE, UPDATE, old_key_text

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

PARK = ord("P")
"""A row that came from another key, not all of it known."""


class ReplayedRows(StagedRows):
    """One row a key: UPDATE puts a row there whether or not there is one, DELETE leaves none."""

    def __init__(self, stage: Stage, places: Sequence[int], changes: TableChanges) -> None:
        events = _Events(changes, [places[index] for index in stage.key])
        super().__init__(changes.commit_lsn[events.change], changes.ordinal[events.change])
        values = RowValues(changes)
        picks, self._unset = [], []
        for place in places:
            pick, unset = events.last_sent(values.unset(place))
            picks.append(pick)
            self._unset.append(unset)
        count = len(events.change)
        numbers = [str(index + 1) for index in range(len(places))]
        unset_texts, self._incomplete = array_texts(numbers, self._unset, count)
        self._op = np.where(events.is_put, UPDATE, DELETE).astype(np.uint8)
        self._op[self._incomplete & events.arrived] = PARK
        self._incomplete &= self._op == UPDATE
        self._all["op"] = letters(self._op)
        if self._incomplete.any():
            self._all["unset"] = unset_texts
        keys = dict(zip(events.key, events.key_texts, strict=True))
        for index, place in enumerate(places):
            self._all[f"c{index + 1}"] = (
                keys[place] if place in keys else values.text(place).take(pa.array(picks[index]))
            )

    def part(self, table: int, part: int, rows: slice, kept: Mask, size: int) -> Part:
        counts = np.bincount(self._op[rows][kept], minlength=256)
        return Part(
            table=table,
            part=part,
            updates=int(counts[UPDATE]),
            rekeys=int(counts[PARK]),
            deletes=int(counts[DELETE]),
            incomplete=int((self._incomplete[rows] & kept).sum()),
            refused=int((~kept).sum()),
            bytes=size,
        )

    def op_name(self, row: int) -> str:
        return op_name(chr(self._op[row])) if self._op[row] != PARK else "update"

    def values(self, stage: Stage, row: int) -> dict[str, str | None]:
        unset = [i for i, mask in enumerate(self._unset) if mask is not None and mask[row]]
        known = known_columns(stage, chr(self._op[row]), unset)
        names = [stage.columns[index].name for index in known]
        return {name: text for name, text in super().values(stage, row).items() if name in names}


class _Events:
    """What changes do to keys: each takes a row from one, or puts one there, or both."""

    def __init__(self, changes: TableChanges, key: Sequence[int]) -> None:
        self.key = key
        op, count = changes.op, len(changes)
        values = RowValues(changes)
        after = [values.text(column) for column in key]
        before = [old_key_text(changes, values, column) for column in key]
        moved = np.zeros(count, bool)
        for old, new in zip(before, after, strict=True):
            same = pa.compute.equal(old, new)
            if same.null_count:
                raise DecodeError(
                    f"table {changes.table.qualified_name}: a change came with a null in a column "
                    "of the key",
                    remedy="the key's columns must be NOT NULL at the source",
                )
            moved |= ~same.to_numpy(zero_copy_only=False)
        moved &= op == tuples.UPDATE
        numbers = np.arange(count)
        takes, puts = numbers[(op == tuples.DELETE) | moved], numbers[op != tuples.DELETE]
        texts = [
            pa.concat_arrays([old.take(pa.array(takes)), new.take(pa.array(puts))])
            for old, new in zip(before, after, strict=True)
        ]
        codes = _codes(texts)
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
        self.is_put = is_put[last]
        self.arrived = self.is_put & (begin >= first) & moved[self._change[self._start]]
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


def _codes(columns: Sequence[pa.Array]) -> Ints:
    """A number for each row: equal where all columns are equal, as texts."""
    codes = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        encoded = column.dictionary_encode()
        number = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
        # Dense again, so that the next product cannot overflow.
        _, codes = np.unique(codes * len(encoded.dictionary) + number, return_inverse=True)
    return codes
