"""Writes a table's rows anew: to put small files together, to apply deletes, or in new columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.manifest import DataFile, ManifestEntry
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from penstock.destination.iceberg.live_rows import Group, LiveRows
from penstock.destination.iceberg.merging import positions
from penstock.destination.iceberg.partitions import by_partition
from penstock.destination.iceberg.snapshots import Change
from penstock.destination.iceberg.written_files import FileWriter

Ints = npt.NDArray[np.int64]
Turn = Callable[[pa.Table], pa.Table]

LARGEST = 512 * 2**20
_FEW = 4
_MUCH_GONE = 0.3


def rewritten(table: Table, schema: Schema, turn: Turn) -> Change:
    """All rows in another schema, with no deletes left."""
    live = LiveRows(table)
    writer = FileWriter(table.io, table.location(), schema)
    return Change(_anew(writer, live, live.data, turn), frozenset(live.paths), schema=schema)


def _anew(
    writer: FileWriter, live: LiveRows, entries: Sequence[ManifestEntry], turn: Turn
) -> list[DataFile]:
    """The rows of these files in others, partition by partition."""
    return [
        file
        for partition, some in by_partition(entries).items()
        for file in writer.data_files(_pieces(live, some, turn), LARGEST, partition)
    ]


def _pieces(live: LiveRows, entries: Sequence[ManifestEntry], turn: Turn) -> Iterator[pa.Table]:
    for entry in entries:
        for group, rows in live.rows(entry):
            if len(rows):
                yield turn(live.table_rows(group, rows))


def _same(rows: pa.Table) -> pa.Table:
    return rows


@dataclass(frozen=True)
class _Worn:
    """A file that stays, or is written anew: which of its rows are gone."""

    entry: ManifestEntry
    gone: list[tuple[Group, Ints]]

    @property
    def share(self) -> float:
        return sum(len(places) for _, places in self.gone) / self.entry.data_file.record_count


def compacted(table: Table, small: int) -> Change | None:
    """Small files, and those of which much is gone, put together; what is gone of the others as
    one file of positions, in place of all deletes. None where there is too little to do.
    """
    live = LiveRows(table)
    small_ones = by_partition(e for e in live.data if e.data_file.file_size_in_bytes < small)
    # One file of positions is what is left of a partition when all is done.
    has_deletes = any(len(files) > 1 for files in by_partition(live.deletes).values()) or any(
        entry.data_file.equality_ids for entry in live.deletes
    )
    if max(map(len, small_ones.values()), default=0) < _FEW and not has_deletes:
        return None
    anew = [
        entry
        for files in small_ones.values()
        for entry in files
        if len(files) > 1 or live.has_deletes(entry)
    ]
    paths = {entry.data_file.file_path for entry in anew}
    places: list[tuple[Group, Ints]] = []
    for entry in live.data:
        if entry.data_file.file_path not in paths and live.has_deletes(entry):
            worn = _worn(live, entry)
            if worn.share > _MUCH_GONE:
                anew.append(entry)
            else:
                places += worn.gone
    writer = FileWriter.of(table)
    added = _anew(writer, live, anew, _same) + positions(writer, places)
    removed = [entry.data_file.file_path for entry in (*anew, *live.deletes)]
    return Change(added, frozenset(removed), replaces=True) if removed else None


def _worn(live: LiveRows, entry: ManifestEntry) -> _Worn:
    gone = []
    for group, rows in live.rows(entry):
        if len(rows) < group.count:
            is_gone = np.ones(group.count, bool)
            is_gone[rows] = False
            gone.append((group, np.flatnonzero(is_gone) + group.start))
    return _Worn(entry, gone)
