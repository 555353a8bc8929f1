"""The executor's side: folds a task's changes to net rows, and stages a file a table."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from penstock.decode.changes import ChangeSet, TableChanges
from penstock.decode.row_values import RowValues
from penstock.destination.contract import ChunkReceipt, ChunkWriter, Receipt, TaskWriter
from penstock.destination.families.staged_merge.receipt import Kind, MergeBatch, MergePart, Run
from penstock.destination.families.staged_merge.stage import FileStage
from penstock.destination.families.target import Target, target_of
from penstock.model.errors import unreadable_alone
from penstock.model.table_rows import ChunkReader
from penstock.transform.key_events import KeyEvents
from penstock.transform.net_rows import DELETE, REKEY, UPDATE, counted_rows, net_rows
from penstock.transform.table_order import after, in_table_order

PARK = ord("P")
"""A replayed row that came from another key, not all of it known."""


@dataclass(frozen=True)
class StagedWriter(TaskWriter):
    """Stages the changes of the tables that it knows; all others were excluded by the pipeline."""

    stage: FileStage
    targets: Mapping[int, Target]
    replayed: frozenset[int] = frozenset()

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
        if not target.key:
            kind: Kind = "counted"
            rows = _counted(places, changes)
        elif target.oid in self.replayed:
            kind, rows = "replayed", _replayed(target, places, changes)
        else:
            kind, rows = "keyed", _keyed(target, places, changes)
        if not rows.num_rows:
            return None
        file = self.stage.put([rows], rows.schema)
        return MergePart(target.oid, file, kind, rows.num_rows)


def _keyed(target: Target, places: list[int], changes: TableChanges) -> pa.Table:
    """``op``; columns ``c…``; where there are any, key columns before ``k…`` and masks ``u…``."""
    key = [places[index] for index in target.key]
    rows = net_rows(changes, key)
    found = {"op": pa.array(rows.op)}
    for index, place in enumerate(places):
        found[f"c{index}"] = rows.text(place)
        if (unset := rows.unset(place)) is not None:
            found[f"u{index}"] = pa.array(unset)
    if (rows.op == REKEY).any():
        found.update({f"k{index}": rows.old_key(places[index]) for index in target.key})
    return pa.table(found)


def _replayed(target: Target, places: list[int], changes: TableChanges) -> pa.Table:
    """As ``_keyed``, one row a key: put one, whether or not there is one, delete it, or park it."""
    events = KeyEvents(changes, [places[index] for index in target.key])
    values = RowValues(changes)
    partial = np.zeros(len(events.change), bool)
    keys = dict(zip(target.key, events.key_texts, strict=True))
    found = {}
    for index, place in enumerate(places):
        pick, unset = events.last_sent(values.unset(place))
        found[f"c{index}"] = (
            keys[index] if index in keys else values.text(place).take(pa.array(pick))
        )
        if unset is not None:
            found[f"u{index}"] = pa.array(unset)
            partial |= unset
    op = np.where(events.is_put, UPDATE, DELETE).astype(np.uint8)
    op[partial & events.arrived] = PARK
    return pa.table({"op": pa.array(op), **found})


def _counted(places: list[int], changes: TableChanges) -> pa.Table:
    """``n``: how many of each row to add or, below zero, to remove."""
    rows = counted_rows(changes)
    columns = {f"c{index}": rows.text(place) for index, place in enumerate(places)}
    return pa.table({"n": pa.array(rows.count), **columns})


@dataclass(frozen=True)
class StagedChunkWriter(ChunkWriter):
    """Stages chunks of one table. ``copy`` tells this copy of the table from earlier ones."""

    stage: FileStage
    target: Target
    copy: str
    again: bool

    def write(self, rows: ChunkReader) -> ChunkReceipt:
        places = self.target.places(rows.table)
        count = size = 0

        def pieces() -> Iterator[pa.Table]:
            nonlocal count, size
            for piece in rows.texts():
                count += len(piece)
                size += sum(column.nbytes for column in piece.columns)
                columns = [piece.columns[place] for place in places]
                # Their number is told beside them: a table without columns has rows, too.
                yield pa.table([*columns, pa.nulls(len(piece))], schema=schema)

        names = [*(f"c{index}" for index in range(len(places))), "row"]
        types = [*(pa.string() for _ in places), pa.null()]
        schema = pa.schema(list(zip(names, types, strict=True)))
        file = self.stage.put(pieces(), schema)
        content = [self.target.oid, self.copy, rows.chunk, file, self.again]
        return ChunkReceipt(count, size, json.dumps(content).encode())
