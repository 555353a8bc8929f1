"""Copied rows as Parquet files that the lake takes over."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from penstock.destination.ducklake.merging import logical
from penstock.destination.families.staged_merge.parquet_chunks import ParquetChunks
from penstock.destination.families.staged_merge.typed_columns import NO_COLUMNS
from penstock.destination.families.target import Target


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


def remove_strays(folder: Path, known: Iterable[str]) -> None:
    """Remove files that no lake knows: their driver died before it added them."""
    names = {Path(path).name for path in known}
    if folder.is_dir():
        for file in folder.iterdir():
            if file.name not in names:
                file.unlink(missing_ok=True)
