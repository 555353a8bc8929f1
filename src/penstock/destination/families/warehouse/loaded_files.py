"""Files in an object store that a warehouse loads: executors and driver write them there."""

from __future__ import annotations

import tempfile
import uuid
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import ClassVar

import pyarrow as pa

from penstock.destination.families.staged_merge.stage import ChunkStage
from penstock.destination.families.warehouse.csv_files import csv_lines, gzipped
from penstock.destination.families.warehouse.staged_rows import ROW
from penstock.objects.bucket import Bucket


@dataclass(frozen=True, kw_only=True)
class LoadedFiles(ChunkStage):
    """Files as the warehouse loads them. ``leave_out`` are columns of what is staged that the file
    does not have.
    """

    bucket: Bucket
    leave_out: tuple[str, ...] = ()
    ending: ClassVar[str]

    def put(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> str:
        """By way of a file: a chunk may be larger than what an executor has to spare."""
        name = f"{uuid.uuid4().hex}.{self.ending}"
        left = (piece.drop_columns(list(self.leave_out)) for piece in pieces)
        with tempfile.TemporaryDirectory(prefix="penstock-stage-") as folder:
            path = Path(folder) / name
            self.write(left, path)
            self.bucket.put_file(name, path)
        return name

    @abstractmethod
    def write(self, pieces: Iterable[pa.Table], path: Path) -> None:
        """Write one file, whose name is its path's."""

    def remove(self, names: Sequence[str]) -> None:
        self.bucket.delete(*names)


@dataclass(frozen=True, kw_only=True)
class CsvFiles(LoadedFiles):
    """The file's own name, without what is behind its dot, stands for no value: no value is equal
    to it, and no line is blank.
    """

    ending = "csv.gz"

    def write(self, pieces: Iterable[pa.Table], path: Path) -> None:
        null = own_null(path.name)
        with path.open("wb") as file:
            file.writelines(gzipped(csv_lines(piece, null) for piece in pieces))


@dataclass(frozen=True, kw_only=True)
class ParquetFiles(LoadedFiles):
    """Values are texts, as in CSV; a file says itself which are null."""

    ending = "parquet"

    def write(self, pieces: Iterable[pa.Table], path: Path) -> None:
        import pyarrow.parquet as pq

        # The column of rows that have none, by the name that statements call it.
        named = (
            piece.rename_columns([ROW if name == "row" else name for name in piece.column_names])
            for piece in pieces
        )
        rest = iter(named)
        first = next(rest, pa.table({}))
        with pq.ParquetWriter(path, first.schema, compression="zstd") as writer:
            for piece in chain([first], rest):
                writer.write_table(piece)


def own_null(file: str) -> str:
    """What stands for null in a file of this name."""
    return file.partition(".")[0]
