"""Copied rows as Parquet files in the folder of a Delta table, which then takes them over."""

from __future__ import annotations

import importlib
import json
import time
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.destination.families import durable
from penstock.destination.families.staged_merge.stage import FileStage


@dataclass(frozen=True)
class DeltaChunkFiles(FileStage):
    """Files that no commit names are nothing to readers; VACUUM removes them in the end."""

    path: str
    columns: tuple[str, ...]

    def put(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> str:
        name = f"{uuid.uuid4().hex}.parquet"
        folder = Path(self.path)
        with durable.explained(folder):
            named = self._named(schema.empty_table()).schema
            with pq.ParquetWriter(folder / name, named, compression="zstd") as writer:
                for piece in pieces:
                    writer.write_table(self._named(piece))
            # What a commit names has to be there.
            durable.sync_all([folder / name, folder])
        return name

    def _named(self, rows: pa.Table) -> pa.Table:
        return rows.drop_columns(["row"]).rename_columns(list(self.columns))

    def action(self, name: str, rows: int) -> Any:
        """What adds a file to the table."""
        size = (Path(self.path) / name).stat().st_size
        stats = json.dumps({"numRecords": rows})
        module = importlib.import_module("deltalake.transaction")
        return module.AddAction(name, size, {}, int(time.time() * 1000), True, stats)

    def get(self, name: str) -> pa.Table:
        return pq.read_table(Path(self.path) / name, partitioning=None)

    def remove(self, names: Sequence[str]) -> None:
        """Nothing: they belong to the table."""

    def clean(self) -> None:
        """Nothing: VACUUM knows which belong to nobody."""

    def note(self, text: str) -> None:
        raise NotImplementedError

    def noted(self) -> str | None:
        raise NotImplementedError
