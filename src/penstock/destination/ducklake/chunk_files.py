"""Copied rows as Parquet files that the lake takes over."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.destination.ducklake.merging import logical
from penstock.destination.families.staged_merge.parquet_chunks import ParquetChunks
from penstock.destination.families.staged_merge.stage import ChunkStage
from penstock.destination.families.staged_merge.typed_columns import NO_COLUMNS
from penstock.destination.families.target import Target
from penstock.objects.bucket import Bucket


@dataclass(frozen=True)
class DuckLakeChunkFiles(ParquetChunks):
    """A folder below the data path. Files that the lake knows are its own; ``remove_strays`` finds
    those that belong to nobody.
    """

    target: Target

    def table_rows(self, rows: pa.Table) -> pa.Table:
        if self.target.columns:
            rows = rows.drop_columns(["row"])
        names = list(self.target.columns) or [NO_COLUMNS]
        return logical(self.target, rows).rename_columns(names)

    def file(self, name: str) -> str:
        """Where a file is."""
        return str(Path(self.path) / name)


@dataclass(frozen=True)
class BucketChunkFiles(ChunkStage):
    """The same in an object store. By way of a file: a chunk may be larger than what an executor
    has to spare.
    """

    bucket: Bucket
    target: Target

    def put(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> str:
        with tempfile.TemporaryDirectory(prefix="penstock-copy-") as folder:
            name = DuckLakeChunkFiles(folder, self.target).put(pieces, schema)
            self.bucket.put_file(name, Path(folder) / name)
        return name

    def remove(self, names: Sequence[str]) -> None:
        """Nothing: once they are named they belong to the table."""

    def file(self, name: str) -> str:
        """Where a file is."""
        return f"{self.bucket.path}/{name}"


def remove_stray_objects(bucket: Bucket, known: Iterable[str]) -> None:
    """The same as ``remove_strays`` in an object store."""
    names = {Path(path).name for path in known}
    bucket.delete(*(each.name for each in bucket.list() if each.name not in names))


def remove_strays(folder: Path, known: Iterable[str]) -> None:
    """Remove files that no lake knows: their driver died before it added them."""
    names = {Path(path).name for path in known}
    if folder.is_dir():
        for file in folder.iterdir():
            if file.name not in names:
                file.unlink(missing_ok=True)
