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
from penstock.transform.key_events import KeyEvents
from penstock.transform.net_rows import DELETE, UPDATE

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

PARK = ord("P")
"""A row that came from another key, not all of it known."""


class ReplayedRows(StagedRows):
    """One row a key: UPDATE puts a row there whether or not there is one, DELETE leaves none."""

    def __init__(self, stage: Stage, places: Sequence[int], changes: TableChanges) -> None:
        events = KeyEvents(changes, [places[index] for index in stage.key])
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
