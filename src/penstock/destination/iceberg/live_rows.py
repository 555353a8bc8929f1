"""Reads a table: which rows of its files are still there, and where rows with given keys are.

pyiceberg cannot read tables that have equality deletes. Files are read by field ids, one row group
at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.conversions import from_bytes
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestEntry
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import PrimitiveType

from penstock.destination.iceberg.columns import arrow_schema, file_columns
from penstock.destination.iceberg.partitions import TablePartition
from penstock.destination.iceberg.snapshots import entries_of
from penstock.model.errors import DestinationError

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Ids = tuple[int, ...]


@dataclass(frozen=True)
class KeyValues:
    """Values of some columns, by field id; what identifies rows."""

    ids: Ids
    columns: tuple[pa.Array, ...]

    @cached_property
    def bounds(self) -> tuple[Any, Any]:
        found = pc.min_max(self.columns[0])
        return found["min"].as_py(), found["max"].as_py()

    def places(self, rows: Sequence[pa.Array]) -> tuple[Ints, Ints]:
        """Where rows have one of the keys: the rows, and their keys."""
        names = [f"k{index}" for index in range(len(self.ids))]
        here = pa.table([*self.columns, _counted(len(self.columns[0]))], [*names, "place"])
        there = pa.table([*rows, _counted(len(rows[0]))], [*names, "row"])
        found = there.join(here, names, join_type="inner").sort_by("row")
        return found["row"].to_numpy(), found["place"].to_numpy()


def _counted(count: int) -> pa.Array:
    return pa.array(np.arange(count))


@dataclass(frozen=True)
class Group:
    """A row group of a data file: the file and its partition, the place of the group's first row in
    the file, and how to read columns.
    """

    path: str
    partition: TablePartition
    start: int
    count: int
    read: Callable[[Ids], list[pa.Array]]


@dataclass(frozen=True)
class FoundRows:
    """Rows of a group: their places in the file, and which of the keys they have."""

    group: Group
    rows: Ints
    keys: Ints

    @property
    def positions(self) -> Ints:
        return self.rows + self.group.start


class LiveRows:
    """A table's files at one snapshot."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.schema: Schema = table.schema()
        entries = entries_of(table)
        self.data = [e for e in entries if e.data_file.content == DataFileContent.DATA]
        self.deletes = [e for e in entries if e.data_file.content != DataFileContent.DATA]
        for entry in entries:
            if entry.data_file.file_format != FileFormat.PARQUET:
                raise DestinationError(
                    f"destination iceberg: {'.'.join(table.name())} has files that are not "
                    "Parquet: somebody else wrote them",
                    remedy="let whoever maintains the table write Parquet files and no deletion "
                    "vectors; `penstock tables resync` copies the table anew",
                )

    @property
    def paths(self) -> list[str]:
        return [entry.data_file.file_path for entry in (*self.data, *self.deletes)]

    @cached_property
    def _gone_places(self) -> dict[str, Ints]:
        """The places of rows that position deletes name, by file."""
        found: dict[str, list[Ints]] = {}
        for entry in self.deletes:
            if entry.data_file.content == DataFileContent.POSITION_DELETES:
                with self._table.io.new_input(entry.data_file.file_path).open() as stream:
                    rows = pq.read_table(stream, columns=["file_path", "pos"])
                for path in pc.unique(rows["file_path"]).to_pylist():
                    mask = pc.equal(rows["file_path"], path)
                    found.setdefault(path, []).append(rows["pos"].filter(mask).to_numpy())
        return {path: np.unique(np.concatenate(places)) for path, places in found.items()}

    @cached_property
    def _gone_keys(self) -> dict[Ids, tuple[KeyValues, Ints]]:
        """The keys that equality deletes name, and the last sequence number of each."""
        parts: dict[Ids, list[tuple[list[pa.Array], int]]] = {}
        for entry in self.deletes:
            if entry.data_file.content == DataFileContent.EQUALITY_DELETES:
                ids = tuple(sorted(entry.data_file.equality_ids or ()))
                rows = [group.read(ids) for group in self.groups(entry)]
                parts.setdefault(ids, []).extend((r, entry.sequence_number or 0) for r in rows)
        found = {}
        for ids, each in parts.items():
            names = [f"k{index}" for index in range(len(ids))]
            tables = [
                pa.table([*rows, pa.array(np.full(len(rows[0]), number))], [*names, "seq"])
                for rows, number in each
            ]
            last = pa.concat_tables(tables).group_by(names).aggregate([("seq", "max")])
            last = last.combine_chunks()
            keys = tuple(_whole(last[name]) for name in names)
            found[ids] = (KeyValues(ids, keys), last["seq_max"].to_numpy())
        return found

    def groups(self, entry: ManifestEntry, keys: KeyValues | None = None) -> Iterator[Group]:
        """The row groups of a file, but for those that have none of the keys for sure."""
        path = entry.data_file.file_path
        if keys is not None and not self._may_have(entry, keys):
            return
        with self._table.io.new_input(path).open() as stream:
            file = pq.ParquetFile(stream)
            names = file_columns(file.schema_arrow)
            start = 0
            for number in range(file.num_row_groups):
                described = file.metadata.row_group(number)
                if keys is None or _group_may_have(described, names.get(keys.ids[0]), keys):
                    yield Group(
                        path,
                        TablePartition.of(entry.data_file),
                        start,
                        described.num_rows,
                        _reader(self.schema, file, names, number),
                    )
                start += described.num_rows

    def _may_have(self, entry: ManifestEntry, keys: KeyValues) -> bool:
        kind = self.schema.find_type(keys.ids[0])
        lower = (entry.data_file.lower_bounds or {}).get(keys.ids[0])
        upper = (entry.data_file.upper_bounds or {}).get(keys.ids[0])
        if lower is None or upper is None or not isinstance(kind, PrimitiveType):
            return True
        return _overlap(from_bytes(kind, lower), from_bytes(kind, upper), keys)

    def is_live(self, entry: ManifestEntry, group: Group, rows: Ints) -> Mask:
        """Which of these rows of a group are still there."""
        live = np.ones(len(rows), bool)
        if (gone := self._gone_places.get(group.path)) is not None:
            live &= ~np.isin(rows + group.start, gone)
        number = entry.sequence_number or 0
        for ids, (keys, last) in self._gone_keys.items():
            if len(last) and last.max() > number and self._may_have(entry, keys):
                taken = [column.take(pa.array(rows)) for column in group.read(ids)]
                row, place = keys.places(taken)
                live[row[last[place] > number]] = False
        return live

    def has_deletes(self, entry: ManifestEntry) -> bool:
        """Whether some rows of a file may be gone."""
        if entry.data_file.file_path in self._gone_places:
            return True
        number = entry.sequence_number or 0
        return any(
            len(last) and last.max() > number and self._may_have(entry, keys)
            for keys, last in self._gone_keys.values()
        )

    def rows(self, entry: ManifestEntry) -> Iterator[tuple[Group, Ints]]:
        """The rows of a file that are still there."""
        for group in self.groups(entry):
            rows = np.arange(group.count)
            yield group, rows[self.is_live(entry, group, rows)]

    def find(self, keys: KeyValues) -> Iterator[FoundRows]:
        """Rows that have one of the keys, and are still there."""
        for entry in self.data:
            for group in self.groups(entry, keys):
                rows, places = keys.places(group.read(keys.ids))
                if len(rows):
                    live = self.is_live(entry, group, rows)
                    if live.any():
                        yield FoundRows(group, rows[live], places[live])

    def table_rows(self, group: Group, rows: Ints) -> pa.Table:
        """All columns of these rows."""
        ids = tuple(field.field_id for field in self.schema.fields)
        taken = [column.take(pa.array(rows)) for column in group.read(ids)]
        return pa.table(taken, schema=arrow_schema(self.schema))


def _reader(
    schema: Schema, file: pq.ParquetFile, names: dict[int, str], number: int
) -> Callable[[Ids], list[pa.Array]]:
    def read(ids: Ids) -> list[pa.Array]:
        there = [names[each] for each in ids if each in names]
        rows = file.read_row_group(number, columns=there)
        count = file.metadata.row_group(number).num_rows
        found = []
        for each in ids:
            kind = arrow_schema(Schema(schema.find_field(each))).field(0).type
            if each in names:
                column = _whole(rows[names[each]])
                found.append(column if column.type == kind else column.cast(kind))
            else:
                found.append(pa.nulls(count, kind))
        return found

    return read


def _whole(column: pa.ChunkedArray) -> pa.Array:
    found = column.combine_chunks()
    return found if isinstance(found, pa.Array) else pa.concat_arrays(found.chunks)


def _group_may_have(group: Any, name: str | None, keys: KeyValues) -> bool:
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema == name and column.is_stats_set:
            statistics = column.statistics
            if statistics.has_min_max:
                return _overlap(statistics.min, statistics.max, keys)
    return True


def _overlap(lower: Any, upper: Any, keys: KeyValues) -> bool:
    """Whether keys lie between the two; yes where they cannot be compared."""
    first, last = keys.bounds
    if not (type(lower) is type(first) is type(upper) and isinstance(first, int | str)):
        return True
    return bool(first <= upper and last >= lower)
