"""Copied rows as Parquet files in the place of a Delta table, which then takes them over."""

from __future__ import annotations

import importlib
import json
import tempfile
import time
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.destination.families.staged_merge.parquet_chunks import ParquetChunks
from penstock.destination.families.staged_merge.stage import ChunkStage
from penstock.model.errors import BatchAgain
from penstock.objects.bucket import Bucket


class DeltaChunks(ChunkStage):
    """Files that no commit names are nothing to readers; VACUUM removes them in the end."""

    @abstractmethod
    def get(self, name: str) -> pa.Table: ...

    @abstractmethod
    def size(self, name: str) -> int: ...

    def action(self, name: str, rows: int) -> Any:
        """What adds a file to the table."""
        stats = json.dumps({"numRecords": rows})
        module = importlib.import_module("deltalake.transaction")
        return module.AddAction(name, self.size(name), {}, int(time.time() * 1000), True, stats)


@dataclass(frozen=True)
class FolderDeltaChunks(ParquetChunks, DeltaChunks):
    """In the folder of the table."""

    columns: tuple[str, ...]

    def table_rows(self, rows: pa.Table) -> pa.Table:
        return rows.drop_columns(["row"]).rename_columns(list(self.columns))

    def get(self, name: str) -> pa.Table:
        return pq.read_table(Path(self.path) / name, partitioning=None)

    def size(self, name: str) -> int:
        return (Path(self.path) / name).stat().st_size


@dataclass(frozen=True)
class BucketDeltaChunks(DeltaChunks):
    """The same in an object store. By way of a file: a chunk may be larger than what an executor
    has to spare.
    """

    bucket: Bucket
    columns: tuple[str, ...]

    def put(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> str:
        with tempfile.TemporaryDirectory(prefix="penstock-copy-") as folder:
            name = FolderDeltaChunks(folder, self.columns).put(pieces, schema)
            self.bucket.put_file(name, Path(folder) / name)
        return name

    def get(self, name: str) -> pa.Table:
        data = self.bucket.get(name)
        if data is None:
            raise BatchAgain(f"the file {self.bucket.path}/{name} is gone")
        return pq.read_table(pa.BufferReader(pa.py_buffer(bytes(data))))

    def size(self, name: str) -> int:
        found = self.bucket.size(name)
        if found is None:
            raise BatchAgain(f"the file {self.bucket.path}/{name} is gone")
        return found

    def remove(self, names: Sequence[str]) -> None:
        """Nothing: once they are named they belong to the table."""
