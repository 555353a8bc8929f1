"""The executor's side of change tables: every change is a row, with where and when it was made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.changes import ChangeSet, TableChanges, TruncateEvent
from penstock.decode.flat_rows import op_names
from penstock.decode.row_lists import lists
from penstock.decode.row_values import READ_ORDINAL, RowValues
from penstock.destination.contract import Receipt, TaskWriter
from penstock.destination.encode.ndjson import old_objects
from penstock.destination.families.change_tables.definition import OWN
from penstock.destination.families.staged_merge.receipt import MergeBatch, MergePart, Run
from penstock.destination.families.staged_merge.stage import ChunkStage
from penstock.destination.families.staged_merge.task_writer import (
    StagedChunkWriter,
    copied_columns,
)
from penstock.destination.families.staged_merge.typed_columns import ColumnTyping, RowPlaces
from penstock.destination.families.target import Target, target_of
from penstock.model.errors import unreadable_alone
from penstock.model.table_rows import ChunkReader, TableRows
from penstock.transform.table_order import in_table_order

COPY_ORDINAL = READ_ORDINAL - 1
"""Where a copy begins: before the rows that were read, after what is older than their snapshot."""

Columns = dict[str, pa.Array]


@dataclass(frozen=True)
class ChangeTableWriter(TaskWriter):
    """Stages the changes of the tables that it knows, one file a table and run."""

    stage: ChunkStage
    targets: Mapping[int, Target]
    typing: ColumnTyping

    def write(self, changes: Iterable[ChangeSet]) -> Receipt:
        return MergeBatch(tuple(map(self._run, changes))).to_bytes()

    def _run(self, run: ChangeSet) -> Run:
        return Run((), tuple(map(self._staged, change_rows(run, self.targets, self.typing))))

    def _staged(self, found: ChangeRows) -> MergePart:
        rows = found.table()
        file = self.stage.put([rows], rows.schema)
        return MergePart(found.target.oid, file, "changes", rows.num_rows, dict(found.unfit))


def change_rows(
    run: ChangeSet, targets: Mapping[int, Target], typing: ColumnTyping
) -> Iterable[ChangeRows]:
    """What a run holds of each of the tables."""
    found: dict[int, ChangeRows] = {}
    for changes in in_table_order(run.tables):
        target = target_of(targets, changes.table)
        with unreadable_alone(changes.table.oid, changes.table.qualified_name):
            found.setdefault(target.oid, ChangeRows(target, typing)).add(changes)
    for event in run.truncates:
        for table in event.tables:
            if (emptied := targets.get(table.oid)) is not None:
                found.setdefault(table.oid, ChangeRows(emptied, typing)).add_truncate(event)
    return found.values()


@dataclass
class ChangeRows:
    """What a run holds of one table, as rows of its change table."""

    target: Target
    typing: ColumnTyping
    pieces: list[pa.Table] = field(default_factory=list)
    unfit: Counter[str] = field(default_factory=Counter)

    def table(self) -> pa.Table:
        """With columns ``c0``, ``c1``, …"""
        return pa.concat_tables(self.pieces)

    @property
    def _source(self) -> Target:
        return source_of(self.target)

    def add(self, changes: TableChanges) -> None:
        source, count, values = self._source, len(changes), RowValues(changes)
        if not count:
            return
        places = source.places(changes.table, int(changes.commit_lsn[0]))
        texts = [values.text(place) for place in places]
        where = RowPlaces([texts[i] for i in source.key], changes.commit_lsn, changes.ordinal)
        found: Columns = {}
        for index, text in enumerate(texts):
            found[source.columns[index]] = self._checked(source, index, text, where)
        found |= {
            "_op": op_names(changes.op),
            "_commit_lsn": pa.array(changes.commit_lsn),
            "_ordinal": pa.array(changes.ordinal),
            "_commit_time": pa.array(changes.commit_micros),
            "_xid": pa.array(changes.xid),
            "_unset": lists(
                pa.array(source.columns, pa.string()), [values.unset(p) for p in places], count
            ),
            "_old": self._old(changes, values, [places[index] for index in source.key]),
        }
        self.pieces.append(staged_table(self.target, self.typing, found, count))

    def _old(self, changes: TableChanges, values: RowValues, key: list[int]) -> pa.Array:
        """The old images. One that is unfit is the old key alone: the row is found by it."""
        has_old = np.zeros(len(changes), bool)
        has_old[changes.old_rows] = True
        where = RowPlaces((), changes.commit_lsn, changes.ordinal)

        def images(columns: list[int] | None) -> pa.Array:
            made = old_objects(changes, values, columns).cast(pa.string())
            return pc.if_else(pa.array(has_old), made, None)

        old = self._checked(self.target, self.target.columns.index("_old"), images(None), where)
        is_lost = pa.array(has_old & old.is_null().to_numpy(zero_copy_only=False))
        return pc.if_else(is_lost, images(key), old) if pc.any(is_lost).as_py() else old

    def _checked(self, target: Target, index: int, text: pa.Array, where: RowPlaces) -> pa.Array:
        """A column's values. Counts those that were unfit."""
        found, unfit = self.typing.column(target, index, text, where)
        if unfit:
            self.unfit[target.columns[index]] += unfit
        return found

    def add_truncate(self, event: TruncateEvent) -> None:
        stamp = event.stamp
        found = {
            "_op": pa.array(["truncate"]),
            "_commit_lsn": pa.array([stamp.position.commit_lsn]),
            "_ordinal": pa.array([stamp.position.ordinal]),
            "_commit_time": pa.array([stamp.commit_micros]),
            "_xid": pa.array([stamp.xid]),
        }
        self.pieces.append(staged_table(self.target, self.typing, found, 1))


@dataclass(frozen=True)
class ChangeTableChunkWriter(StagedChunkWriter):
    """Stages copied rows as ``read``. A copy's first chunks begin with a row that says so: what is
    older counts no longer, and rows that went unseen are not among those that follow.
    """

    def _places(self, rows: ChunkReader) -> list[int]:
        return source_of(self.target).places(rows.table)

    def _head(self, rows: ChunkReader) -> list[pa.Array] | None:
        if self.again:
            return None
        return self._stamped({}, "copy", COPY_ORDINAL, rows.snapshot.commit_lsn, 1)

    def _columns(self, places: list[int], rows: TableRows, unfit: Counter[str]) -> list[pa.Array]:
        source = source_of(self.target)
        columns = copied_columns(source, places, rows, self.typing, unfit)
        found = dict(zip(source.columns, columns, strict=True))
        return self._stamped(found, "read", READ_ORDINAL, rows.snapshot.commit_lsn, len(rows))

    def _stamped(
        self, found: Columns, op: str, ordinal: int, commit_lsn: int, count: int
    ) -> list[pa.Array]:
        assert self.typing is not None  # noqa: S101 (who has change tables has types)
        found |= {
            "_op": pa.repeat(op, count),
            "_commit_lsn": pa.repeat(commit_lsn, count),
            "_ordinal": pa.repeat(ordinal, count),
        }
        columns: list[pa.Array] = staged_table(self.target, self.typing, found, count).columns
        return [column.chunk(0) for column in columns]


def staged_table(target: Target, typing: ColumnTyping, found: Columns, count: int) -> pa.Table:
    """Rows of a change table with columns ``c0``, ``c1``, …; what is not ``found`` is null."""
    columns = []
    for name, plain in zip(target.columns, target.types, strict=True):
        values = found.get(name)
        if values is None:
            columns.append(pa.nulls(count, typing.engine.arrow(plain)))
        else:
            columns.append(typing.engine.own_values(values, plain) if name in OWN else values)
    return pa.table(columns, names=[f"c{index}" for index in range(len(columns))])


def source_of(target: Target) -> Target:
    """The source's table whose changes a change table holds."""
    assert target.source is not None  # noqa: S101 (definition.py makes no others)
    return target.source
