"""Turns net rows into the files of one commit: rows that come, and what tells which ones go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.manifest import DataFile
from pyiceberg.table import Table

from penstock.destination.families.staged_merge.joined_rows import MergedRows
from penstock.destination.families.staged_merge.task_writer import PARK, row_texts
from penstock.destination.families.target import Target
from penstock.destination.iceberg.columns import arrow_types, field_ids, names_of
from penstock.destination.iceberg.live_rows import FoundRows, Group, Ids, KeyValues, LiveRows
from penstock.destination.iceberg.options import Deletes
from penstock.destination.iceberg.partitions import TablePartition
from penstock.destination.iceberg.snapshots import Change
from penstock.destination.iceberg.written_files import FileWriter
from penstock.model.errors import TableRefused
from penstock.transform.net_rows import DELETE, INSERT

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Key = tuple[str, ...]


def key_ids(table: Table, target: Target) -> Ids:
    ids = field_ids(table.schema())
    return tuple(ids[target.columns[index]] for index in target.key)


def is_by_position(target: Target, deletes: Deletes) -> bool:
    """Whether rows go by their places. Keys with floating-point numbers are no keys to Iceberg."""
    types = arrow_types(target)
    return deletes == "position" or any(pa.types.is_floating(types[index]) for index in target.key)


@dataclass(frozen=True)
class Merge:
    """Writes what one table gets. Nothing of it counts before it is committed."""

    table: Table
    target: Target
    deletes: Deletes

    def __post_init__(self) -> None:
        names = [field.name for field in self.table.schema().fields]
        if sorted(names) != sorted(names_of(self.target)):
            raise TableRefused(
                f"table {self.target.qualified_name} has other columns at the destination by now: "
                f"{', '.join(names)}",
                remedy=f"run `penstock tables resync` for {self.target.qualified_name}",
                table=self.target.oid,
            )

    @property
    def _writer(self) -> FileWriter:
        return FileWriter.of(self.table)

    def apply(self, rows: MergedRows) -> tuple[Change, Sequence[Key]]:
        """The files of net rows, and the keys that were parked.

        Raises TableRefused where rows that change are not there: somebody else wrote to the table.
        """
        if rows.kind == "counted":
            return self._counted(rows), ()
        op, parked = rows.op, rows.op == PARK
        is_partial = rows.is_partial & ~parked & (op != DELETE)
        if rows.emptied:
            parked |= is_partial
            kept = _filtered(rows.columns, (op != DELETE) & ~parked)
            return self._replaced(self._data(kept)), rows.parked(parked)
        goes = (op != INSERT) & ~parked
        columns, found = list(rows.columns), list[FoundRows]()
        by_position = is_by_position(self.target, self.deletes)
        looked = goes if by_position else goes & is_partial
        if looked.any():
            there = np.zeros(len(rows), bool)
            places = np.flatnonzero(looked)
            live = LiveRows(self.table)
            filled = _Filled(columns, rows.unset)
            for each in live.find(self._keys(rows.before, looked)):
                found.append(each)
                there[places[each.keys]] = True
                wanted = is_partial[places[each.keys]]
                if wanted.any():
                    old = live.table_rows(each.group, each.rows[wanted])
                    filled.add(old.select(list(self.target.columns)), places[each.keys[wanted]])
            columns = filled.columns()
            lacking = looked & ~there
            if rows.kind == "keyed" and lacking.any():
                raise not_there(self.target, int(lacking.sum()))
            parked |= lacking & is_partial
            goes &= ~parked
        added = self._data(_filtered(columns, (op != DELETE) & ~parked))
        if by_position:
            added += positions(self._writer, ((each.group, each.positions) for each in found))
        elif goes.any():
            added += self._removed_keys(rows.before, goes)
        return Change(added), rows.parked(parked)

    def put(self, rows: pa.Table) -> Change:
        """The files of rows that come in place of those with the same key; without a key, these
        are added.
        """
        added = self._data(rows.columns)
        if self.target.key and rows.num_rows:
            keys = [rows.column(index).combine_chunks() for index in self.target.key]
            all_of_them = np.ones(rows.num_rows, bool)
            if is_by_position(self.target, self.deletes):
                found = LiveRows(self.table).find(self._keys(keys, all_of_them))
                added += positions(self._writer, ((each.group, each.positions) for each in found))
            else:
                added += self._removed_keys(keys, all_of_them)
        return Change(added)

    def emptied(self) -> Change:
        return self._replaced([])

    def _replaced(self, added: list[DataFile]) -> Change:
        return Change(added, frozenset(LiveRows(self.table).paths))

    def _data(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> list[DataFile]:
        rows = pa.table(list(columns), names=list(names_of(self.target)))
        rows = rows.select([field.name for field in self.table.schema().fields])
        return self._writer.data(rows) if rows.num_rows else []

    def _keys(self, columns: Sequence[pa.Array], mask: Mask) -> KeyValues:
        return KeyValues(key_ids(self.table, self.target), tuple(_filtered(columns, mask)))

    def _removed_keys(self, columns: Sequence[pa.Array], mask: Mask) -> list[DataFile]:
        if self.table.current_snapshot() is None:
            return []
        keys = self._keys(columns, mask)
        # As the ids of deletes are compared: in their order.
        ordered = sorted(zip(keys.ids, keys.columns, strict=True), key=lambda pair: pair[0])
        rows = pa.table([column for _, column in ordered], names=[str(ids) for ids, _ in ordered])
        return [self._writer.keys(rows, [ids for ids, _ in ordered])]

    # -- tables without a key --------------------------------------------------------------------

    def _counted(self, rows: MergedRows) -> Change:
        comes = np.maximum(rows.count, 0)
        columns = list(rows.columns)
        if not rows.is_plain:
            places = pa.array(np.repeat(np.arange(len(comes)), comes))
            columns = [column.take(places) for column in columns]
        if not columns:
            columns = [pa.nulls(int(comes.sum()), pa.bool_())]
        added = self._data(columns)
        if rows.emptied:
            return self._replaced(added)
        if (rows.count < 0).any():
            added += positions(self._writer, self._counted_places(rows))
        return Change(added)

    def _counted_places(self, rows: MergedRows) -> Iterator[tuple[Group, Ints]]:
        """So many places of rows that are equal to each that goes."""
        live = LiveRows(self.table)
        goes = np.flatnonzero(rows.count < 0)
        columns = [column.take(pa.array(goes)) for column in rows.columns]
        # Rows that differ as texts may be equal as the types have them.
        coded = _texts(columns, len(goes)).dictionary_encode()
        left = np.zeros(len(coded.dictionary), np.int64)
        np.add.at(left, coded.indices.to_numpy(), -rows.count[goes])
        wanted = KeyValues((0,), (coded.dictionary,))
        for entry in live.data:
            for group, alive in live.rows(entry):
                if not left.any():
                    return
                there = live.table_rows(group, alive).select(list(self.target.columns))
                texts = _texts(there.columns, len(alive))
                row, place = wanted.places([texts])
                order = np.argsort(place, kind="stable")
                row, place = row[order], place[order]
                rank = np.arange(len(place)) - np.searchsorted(place, place)
                taken = rank < left[place]
                if taken.any():
                    np.subtract.at(left, place[taken], 1)
                    yield group, alive[row[taken]] + group.start
        if left.any():
            raise not_there(self.target, int(left.sum()))


def positions(writer: FileWriter, found: Iterable[tuple[Group, Ints]]) -> list[DataFile]:
    """The places of rows that go, in one file for each partition that they are in."""
    places: dict[TablePartition, list[tuple[str, Ints]]] = {}
    for group, some in found:
        places.setdefault(group.partition, []).append((group.path, some))
    return [writer.positions(each, partition) for partition, each in places.items()]


class _Filled:
    """Columns whose unset values are taken from rows that are there."""

    def __init__(self, columns: Sequence[pa.Array], unset: Sequence[Mask | None]) -> None:
        self._columns = columns
        self._unset = unset
        self._rows: list[pa.Table] = []
        self._places: list[Ints] = []

    def add(self, rows: pa.Table, places: Ints) -> None:
        self._rows.append(rows)
        self._places.append(places)

    def columns(self) -> list[pa.Array]:
        if not self._rows:
            return list(self._columns)
        there, places = pa.concat_tables(self._rows), np.concatenate(self._places)
        found = []
        for index, (column, unset) in enumerate(zip(self._columns, self._unset, strict=True)):
            if unset is None or not unset.any():
                found.append(column)
                continue
            old = there.column(index).combine_chunks().cast(column.type)
            both = pa.concat_arrays([column, old])
            pick = np.arange(len(column))
            wanted = unset[places]
            pick[places[wanted]] = len(column) + np.flatnonzero(wanted)
            found.append(both.take(pa.array(pick)))
        return found


def _filtered(columns: Sequence[pa.Array], mask: Mask) -> list[pa.Array]:
    wanted = pa.array(mask)
    return [column.filter(wanted) for column in columns]


def _texts(columns: Sequence[pa.Array | pa.ChunkedArray], count: int) -> pa.Array:
    """Each row as one text, such that rows are equal where these are."""
    found = row_texts([_text(column) for column in columns], count)
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _text(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_nested(column.type) or pa.types.is_binary(column.type):
        values = [None if value is None else repr(value) for value in column.to_pylist()]
        return pa.array(values, pa.string())
    return pc.cast(column, pa.string())


def not_there(target: Target, count: int) -> TableRefused:
    return TableRefused(
        f"table {target.qualified_name}: {count} rows that change are not there: somebody else "
        "wrote to the Iceberg table",
        remedy=f"run `penstock tables resync` for {target.qualified_name}, which copies it anew",
        table=target.oid,
    )
