"""The executor's side: folds a task's changes to net rows, and stages a file a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.changes import ChangeSet, TableChanges
from penstock.decode.row_values import RowValues
from penstock.destination.contract import ChunkReceipt, ChunkWriter, Receipt, TaskWriter
from penstock.destination.families.staged_merge.receipt import (
    Kind,
    MergeBatch,
    MergePart,
    Run,
    StagedChunk,
)
from penstock.destination.families.staged_merge.stage import ChunkStage
from penstock.destination.families.staged_merge.typed_columns import ColumnTyping, RowPlaces
from penstock.destination.families.target import Target, target_of
from penstock.model.errors import unreadable_alone
from penstock.model.table_rows import ChunkReader, TableRows
from penstock.transform.key_events import KeyEvents
from penstock.transform.net_rows import DELETE, REKEY, UPDATE, counted_rows, net_rows
from penstock.transform.table_order import after, in_table_order

PARK = ord("P")
"""A replayed row that came from another key, not all of it known."""


@dataclass(frozen=True)
class StagedWriter(TaskWriter):
    """Stages the changes of the tables that it knows; all others were excluded by the pipeline."""

    stage: ChunkStage
    targets: Mapping[int, Target]
    replayed: frozenset[int] = frozenset()
    typing: ColumnTyping | None = None

    def write(self, changes: Iterable[ChangeSet]) -> Receipt:
        return MergeBatch(tuple(map(self._run, changes))).to_bytes()

    def _run(self, run: ChangeSet) -> Run:
        ends: dict[int, list[tuple[int, int]]] = {}
        for event in run.truncates:
            for table in event.tables:
                if table.oid in self.targets:
                    ends.setdefault(table.oid, []).append(event.stamp.position)
        parts = []
        for changes in in_table_order(run.tables):
            left = after(changes, ends.get(changes.table.oid, ()))
            with unreadable_alone(changes.table.oid, changes.table.qualified_name):
                part = self._part(left) if len(left) else None
            if part is not None:
                parts.append(part)
        return Run(tuple(ends), tuple(parts))

    def _part(self, changes: TableChanges) -> MergePart | None:
        target = target_of(self.targets, changes.table)
        places = target.places(changes.table, int(changes.commit_lsn[0]))
        layout = _Layout(target, places, self.typing)
        if not target.key:
            kind: Kind = "counted"
            layout.counted(changes)
        elif target.oid in self.replayed:
            kind = "replayed"
            layout.replayed(changes)
        else:
            kind = "keyed"
            layout.keyed(changes)
        rows = pa.table(layout.found)
        if not rows.num_rows:
            return None
        file = self.stage.put([rows], rows.schema)
        return MergePart(target.oid, file, kind, rows.num_rows, dict(layout.unfit))


@dataclass
class _Layout:
    """The columns of a staged file, one after the other.

    ``c…`` are the table's columns, as Postgres texts or typed. Where there are any, ``u…`` are
    masks of those that are unset, and ``k…`` columns of the key before, as texts; ``b…`` the same
    typed. Of typed columns of the key ``t…`` are the texts.
    """

    target: Target
    places: list[int]
    typing: ColumnTyping | None
    found: dict[str, pa.Array] = field(default_factory=dict)
    unfit: Counter[str] = field(default_factory=Counter)

    def keyed(self, changes: TableChanges) -> None:
        """``op``, and columns; where rows moved, their keys before."""
        rows = net_rows(changes, [self.places[index] for index in self.target.key])
        self.found["op"] = pa.array(rows.op)
        key = [rows.text(self.places[index]) for index in self.target.key]
        where = RowPlaces(key, rows.commit_lsn, rows.ordinal, rows.op != DELETE)
        for index, place in enumerate(self.places):
            self._add(index, rows.text(place), where)
            if (unset := rows.unset(place)) is not None:
                self.found[f"u{index}"] = pa.array(unset)
        if (rows.op == REKEY).any():
            for index in self.target.key:
                text = rows.old_key(self.places[index])
                self.found[f"k{index}"] = text
                if self.typing is not None:
                    self.found[f"b{index}"], _ = self.typing.column(self.target, index, text, where)

    def replayed(self, changes: TableChanges) -> None:
        """One row a key: put one, whether or not there is one, delete it, or park it."""
        events = KeyEvents(changes, [self.places[index] for index in self.target.key])
        values = RowValues(changes)
        partial = np.zeros(len(events.change), bool)
        keys = dict(zip(self.target.key, events.key_texts, strict=True))
        op = np.where(events.is_put, UPDATE, DELETE).astype(np.uint8)
        where = RowPlaces(
            events.key_texts,
            changes.commit_lsn[events.change],
            changes.ordinal[events.change],
            events.is_put,
        )
        for index, place in enumerate(self.places):
            pick, unset = events.last_sent(values.unset(place))
            text = keys[index] if index in keys else values.text(place).take(pa.array(pick))
            self._add(index, text, where)
            if unset is not None:
                self.found[f"u{index}"] = pa.array(unset)
                partial |= unset
        op[partial & events.arrived] = PARK
        self.found["op"] = pa.array(op)

    def counted(self, changes: TableChanges) -> None:
        """``n``: how many of each row to add or, below zero, to remove; ``t``: the row as text."""
        rows = counted_rows(changes)
        self.found["n"] = pa.array(rows.count)
        where = RowPlaces((), rows.commit_lsn, rows.ordinal)
        texts = [rows.text(place) for place in self.places]
        for index, text in enumerate(texts):
            self._add(index, text, where)
        if self.typing is not None:
            self.found["t"] = row_texts(texts, len(rows))

    def _add(self, index: int, text: pa.Array, where: RowPlaces) -> None:
        if self.typing is None:
            self.found[f"c{index}"] = text
            return
        values, unfit = self.typing.column(self.target, index, text, where)
        self.found[f"c{index}"] = values
        if index in self.target.key:
            self.found[f"t{index}"] = text
        if unfit:
            self.unfit[self.target.columns[index]] += unfit


def row_texts(columns: list[pa.Array], count: int) -> pa.Array:
    """Each row as one text, such that rows are equal where these are."""
    if not columns:
        return pa.array([""] * count, pa.string())
    # No text of Postgres holds a zero byte; a null is no text.
    marked = [
        pc.if_else(pc.is_null(text), "", pc.binary_join_element_wise("=", text, ""))
        for text in columns
    ]
    return pc.binary_join_element_wise(*marked, "\0")


@dataclass(frozen=True)
class StagedChunkWriter(ChunkWriter):
    """Stages chunks of one table. ``copy`` tells this copy of the table from earlier ones."""

    stage: ChunkStage
    target: Target
    copy: str
    again: bool
    typing: ColumnTyping | None = None

    def write(self, rows: ChunkReader) -> ChunkReceipt:
        places, head = self._places(rows), self._head(rows)
        count = size = 0
        unfit: Counter[str] = Counter()

        def pieces() -> Iterator[pa.Table]:
            nonlocal count, size
            if head is not None:
                yield table(head, 1)
            for piece in rows.texts():
                count += len(piece)
                size += sum(column.nbytes for column in piece.columns)
                yield table(self._columns(places, piece, unfit), len(piece))

        def table(columns: list[pa.Array], count: int) -> pa.Table:
            # Their number is told beside them: a table without columns has rows, too.
            return pa.table([*columns, pa.nulls(count, pa.bool_())], schema=schema)

        width = len(self.target.columns)
        types = [pa.string()] * width if self.typing is None else self.typing.schema(self.target)
        names = [f"c{index}" for index in range(width)]
        schema = pa.schema([*zip(names, types, strict=True), ("row", pa.bool_())])
        file = self.stage.put(pieces(), schema)
        there = count + (head is not None)
        staged = StagedChunk(
            self.target.oid, self.copy, rows.chunk, file, self.again, there, dict(unfit)
        )
        return ChunkReceipt(count, size, staged.to_bytes())

    def _places(self, rows: ChunkReader) -> list[int]:
        return self.target.places(rows.table)

    def _head(self, rows: ChunkReader) -> list[pa.Array] | None:
        """A row of the target before those that were read; None without one."""
        return None

    def _columns(self, places: list[int], rows: TableRows, unfit: Counter[str]) -> list[pa.Array]:
        """The target's columns of rows that were read."""
        return copied_columns(self.target, places, rows, self.typing, unfit)


def copied_columns(
    target: Target,
    places: list[int],
    rows: TableRows,
    typing: ColumnTyping | None,
    unfit: Counter[str],
) -> list[pa.Array]:
    """The target's columns of rows that were copied; counts those values that were unfit."""
    columns = [rows.columns[place] for place in places]
    if typing is None:
        return columns
    where = RowPlaces([columns[index] for index in target.key])
    typed = []
    for index, text in enumerate(columns):
        values, count = typing.column(target, index, text, where)
        typed.append(values)
        if count:
            unfit[target.columns[index]] += count
    return typed
