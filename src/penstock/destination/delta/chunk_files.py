"""Copied rows as Parquet files in the folder of a Delta table, which then takes them over."""

from __future__ import annotations

import importlib
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.destination.families.staged_merge.parquet_chunks import ParquetChunks


@dataclass(frozen=True)
class DeltaChunkFiles(ParquetChunks):
    """Files that no commit names are nothing to readers; VACUUM removes them in the end."""

    columns: tuple[str, ...]

    def table_rows(self, rows: pa.Table) -> pa.Table:
        return rows.drop_columns(["row"]).rename_columns(list(self.columns))

    def get(self, name: str) -> pa.Table:
        return pq.read_table(Path(self.path) / name, partitioning=None)

    def action(self, name: str, rows: int) -> Any:
        """What adds a file to the table."""
        size = (Path(self.path) / name).stat().st_size
        stats = json.dumps({"numRecords": rows})
        module = importlib.import_module("deltalake.transaction")
        return module.AddAction(name, size, {}, int(time.time() * 1000), True, stats)
