"""The rows of a run as the columns of a staging table."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.changes import TableChanges, side_by_side
from penstock.decode.copy_text import Column
from penstock.decode.flat_rows import op_names
from penstock.decode.row_values import RowValues
from penstock.destination.encode.ndjson import old_objects
from penstock.destination.postgres.staging.receipt import Part
from penstock.destination.postgres.staging.stage import Stage
from penstock.transform.net_rows import DELETE, INSERT, REKEY, UPDATE, counted_rows, net_rows

Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]


class StagedRows(ABC):
    """Rows on their way into staging tables: their columns beside ``part``, in COPY's order.

    Mostly of one table; ``bounds`` tells the rows of several tables of the same shape apart.
    """

    def __init__(self, commit_lsn: Ints, ordinal: Ints, bounds: list[int] | None = None) -> None:
        self.bounds = bounds or [0, len(commit_lsn)]
        self._commit_lsn = commit_lsn
        self._ordinal = ordinal
        self._all: dict[str, Column] = {
            # As numbers until they are asked for: rows that are handed over need no text of them.
            "commit_lsn": commit_lsn,
            "ordinal": ordinal,
        }

    def __len__(self) -> int:
        return len(self._commit_lsn)

    @property
    def names(self) -> list[str]:
        return list(self._columns)

    def columns(self, first: int, last: int) -> list[Column]:
        """The rows ``first`` up to ``last`` of each column."""
        return [_some(column, first, last) for column in self._columns.values()]

    def plain_lines(self) -> pa.Array | None:
        """The lines of COPY for the target, if they can be had without the columns."""
        return None

    @property
    def only_adds(self) -> bool:
        """Whether each row is to be added once, and nothing else is to be done."""
        return False

    def target_columns(self, first: int, last: int) -> list[Column]:
        """The rows ``first`` up to ``last`` of the columns that the target has."""
        return [
            _some(column, first, last)
            for name, column in self._columns.items()
            if name[0] == "c" and name[1:].isdigit()
        ]

    def positions(self, first: int, last: int) -> tuple[Ints, Ints]:
        return self._commit_lsn[first:last], self._ordinal[first:last]

    def position(self, row: int) -> tuple[int, int]:
        return int(self._commit_lsn[row]), int(self._ordinal[row])

    @abstractmethod
    def part(self, table: int, part: int, rows: slice, kept: Mask, size: int) -> Part:
        """The receipt for one table's ``rows``, as far as they were ``kept``."""

    @abstractmethod
    def op_name(self, row: int) -> str: ...

    def times(self, row: int) -> int:
        """How many rows a staged one stands for."""
        return 1

    def values(self, stage: Stage, row: int) -> dict[str, str | None]:
        """One row for a person: column → text, without what is not known."""
        return {
            column.name: self._text(f"c{index + 1}", row)
            for index, column in enumerate(stage.columns)
        }

    def read(self) -> None:
        """Make the columns, unless that is done. Raises DecodeError."""
        _ = self._columns

    @property
    def _columns(self) -> dict[str, Column]:
        return self._all

    def _text(self, name: str, row: int) -> str | None:
        column = self._columns.get(name)
        if column is None or isinstance(column, str):
            return column
        text: str | None = column[row].as_py()
        return text


class KeyedRows(StagedRows):
    """Net rows by key."""

    def __init__(self, stage: Stage, places: Sequence[int], tables: Sequence[TableChanges]) -> None:
        key = [places[index] for index in stage.key]
        owners = None
        if len(tables) > 1:
            owners = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
        rows = net_rows(side_by_side(tables), key, owners)
        super().__init__(rows.commit_lsn, rows.ordinal, rows.bounds(len(tables)))
        self._op = rows.op
        self._incomplete = np.zeros(len(rows), bool)
        self._unset: list[Mask | None] = []
        if rows.is_all_inserts:
            self._all["op"] = "I"
        else:
            self._all["op"] = letters(rows.op)
            self._unset = [rows.unset(place) for place in places]
            if any(mask is not None for mask in self._unset):
                numbers = [str(index + 1) for index in range(len(places))]
                self._all["unset"], self._incomplete = array_texts(numbers, self._unset, len(rows))
        self._rows = rows
        self._stage_key = stage.key
        self._places = places
        self._is_made = False

    def plain_lines(self) -> pa.Array | None:
        return self._rows.plain_lines(self._places)

    @property
    def _columns(self) -> dict[str, Column]:
        """Made when they are asked for: with plain lines nobody does."""
        if not self._is_made:
            self._make()
            self._is_made = True
        return self._all

    def _make(self) -> None:
        rows = self._rows
        # Of a row that went only its key counts; the other columns of the staging table stay null.
        only_keys = bool((rows.op == DELETE).all())
        for index, place in enumerate(self._places):
            if index in self._stage_key or not only_keys:
                self._all[f"c{index + 1}"] = rows.text(place)
        if (rows.op == REKEY).any():
            for index, column in enumerate(self._stage_key):
                self._all[f"k{index + 1}"] = rows.old_key(self._places[column])

    @property
    def only_adds(self) -> bool:
        return bool((self._op == INSERT).all())

    def part(self, table: int, part: int, rows: slice, kept: Mask, size: int) -> Part:
        counts = np.bincount(self._op[rows][kept], minlength=256)
        return Part(
            table=table,
            part=part,
            inserts=int(counts[INSERT]),
            updates=int(counts[UPDATE]),
            rekeys=int(counts[REKEY]),
            deletes=int(counts[DELETE]),
            incomplete=int((self._incomplete[rows] & kept).sum()),
            refused=int((~kept).sum()),
            bytes=size,
        )

    def op_name(self, row: int) -> str:
        return op_name(chr(self._op[row]))

    def values(self, stage: Stage, row: int) -> dict[str, str | None]:
        unset = [i for i, mask in enumerate(self._unset) if mask is not None and mask[row]]
        known = known_columns(stage, chr(self._op[row]), unset)
        names = [stage.columns[index].name for index in known]
        return {name: text for name, text in super().values(stage, row).items() if name in names}


class StagedCounts(StagedRows):
    """Net rows of a table without a key, with how many of each to add or remove."""

    def __init__(self, stage: Stage, places: Sequence[int], changes: TableChanges) -> None:
        rows = counted_rows(changes)
        super().__init__(rows.commit_lsn, rows.ordinal)
        self._count = rows.count
        self._all["n"] = _numbers(rows.count)
        for index, place in enumerate(places):
            self._all[f"c{index + 1}"] = rows.text(place)

    @property
    def only_adds(self) -> bool:
        return bool((self._count == 1).all())

    def part(self, table: int, part: int, rows: slice, kept: Mask, size: int) -> Part:
        return Part(
            table=table,
            part=part,
            inserts=int((self._count[rows][kept] > 0).sum()),
            deletes=int((self._count[rows][kept] < 0).sum()),
            refused=int(np.abs(self._count[rows][~kept]).sum()),
            bytes=size,
        )

    def op_name(self, row: int) -> str:
        return "insert" if self._count[row] > 0 else "delete"

    def times(self, row: int) -> int:
        return abs(int(self._count[row]))


class HistoryRows(StagedRows):
    """Every change as a row of its own."""

    def __init__(self, stage: Stage, places: Sequence[int], changes: TableChanges) -> None:
        super().__init__(changes.commit_lsn, changes.ordinal)
        values = RowValues(changes)
        count = len(changes)
        self._op = op_names(changes.op)
        self._all["op"] = self._op
        self._all["xid"] = _numbers(changes.xid)
        # The session's time zone is UTC.
        self._all["committed"] = (
            pa.array(changes.commit_micros).cast(pa.timestamp("us")).cast(pa.string())
        )
        masks = [values.unset(place) for place in places]
        if any(mask is not None for mask in masks):
            names = [_array_element(column.name) for column in stage.columns]
            self._all["unset"], _ = array_texts(names, masks, count)
        if len(changes.old_rows):
            has_old = np.zeros(count, bool)
            has_old[changes.old_rows] = True
            objects = old_objects(changes, values)
            self._all["old"] = pc.if_else(pa.array(has_old), objects, None)
        for index, place in enumerate(places):
            self._all[f"c{index + 1}"] = values.text(place)

    def part(self, table: int, part: int, rows: slice, kept: Mask, size: int) -> Part:
        return Part(
            table=table,
            part=part,
            inserts=int(kept.sum()),
            refused=int((~kept).sum()),
            bytes=size,
        )

    def op_name(self, row: int) -> str:
        name: str = self._op[row].as_py()
        return name


def staged_rows(stage: Stage, places: Sequence[int], tables: Sequence[TableChanges]) -> StagedRows:
    """The rows of a table, or of several with a key that follow each other and have one shape.

    ``places`` are the table's columns, as the stream announced it, in the stage's order.
    """
    if stage.kind == "keyed":
        return KeyedRows(stage, places, tables)
    (changes,) = tables
    if stage.kind == "counted":
        return StagedCounts(stage, places, changes)
    return HistoryRows(stage, places, changes)


def op_name(letter: str) -> str:
    """A staged row's op in words."""
    return {"I": "insert", "U": "update", "K": "update", "D": "delete"}[letter]


def known_columns(stage: Stage, op: str, unset: Sequence[int]) -> list[int]:
    """The columns of a staged row that have a value: of a deleted one only its key."""
    if op == "D" and stage.key:
        return list(stage.key)
    return [index for index in range(len(stage.columns)) if index not in unset]


def key_text(stage: Stage, values: dict[str, str | None]) -> str:
    """What tells a row from the others, for a message: its key, or without one all of it."""
    names = [stage.columns[index].name for index in stage.key] or list(values)
    return ", ".join(f"{name} = {_short(values[name])}" for name in names)


def _some(column: Column, first: int, last: int) -> Column:
    if isinstance(column, str):
        return column
    if isinstance(column, np.ndarray):
        return _numbers(column[first:last])
    return column.slice(first, last - first)


def _numbers(values: Ints) -> pa.Array:
    return pa.array(values).cast(pa.string())


def letters(op: npt.NDArray[np.uint8]) -> pa.Array:
    offsets = np.arange(len(op) + 1, dtype=np.int32)
    return pa.Array.from_buffers(
        pa.string(), len(op), [None, pa.py_buffer(offsets), pa.py_buffer(op)]
    )


def array_texts(
    elements: Sequence[str], masks: Sequence[Mask | None], count: int
) -> tuple[pa.Array, Mask]:
    """For each row an array literal of the elements whose mask is set; null where none is.

    Few distinct ones occur, so each is written once.
    """
    code = np.zeros(count, np.int64)
    for mask in masks:
        if mask is not None:
            _, code = np.unique(code * 2 + mask, return_inverse=True)
    _, first, code = np.unique(code, return_index=True, return_inverse=True)
    texts = []
    for row in first.tolist():
        present = [
            element
            for element, mask in zip(elements, masks, strict=True)
            if mask is not None and mask[row]
        ]
        texts.append("{" + ",".join(present) + "}" if present else None)
    found = pa.array(texts, pa.string()).take(pa.array(code))
    return found, ~np.asarray(found.is_null().to_numpy(zero_copy_only=False))


def _array_element(name: str) -> str:
    return json.dumps(name, ensure_ascii=False)


def _short(value: str | None) -> str:
    if value is None:
        return "null"
    return value if len(value) <= 60 else f"{value[:57]}…"
