"""Copied rows as Parquet files that the lake takes over."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.destination.ducklake.merging import logical
from penstock.destination.ducklake.names import NO_COLUMNS
from penstock.destination.families import durable
from penstock.destination.families.staged_merge.stage import FileStage
from penstock.destination.families.target import Target


@dataclass(frozen=True)
class DuckLakeChunkFiles(FileStage):
    """A folder below the data path. Files that the lake knows are its own: ``remove`` and ``clean``
    leave them, and whoever adds one takes it.
    """

    path: str
    target: Target

    def put(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> str:
        name = f"{uuid.uuid4().hex}.parquet"
        folder = Path(self.path)
        names = list(self.target.columns) or [NO_COLUMNS]
        with durable.explained(folder):
            durable.make_folders([folder])
            empty = self._named(schema.empty_table(), names)
            with pq.ParquetWriter(folder / name, empty.schema, compression="zstd") as writer:
                for piece in pieces:
                    writer.write_table(self._named(piece, names))
            # What the lake is told of has to be there.
            durable.sync_all([folder / name, folder])
        return name

    def _named(self, rows: pa.Table, names: list[str]) -> pa.Table:
        if self.target.columns:
            rows = rows.drop_columns(["row"])
        return logical(self.target, rows).rename_columns(names)

    def file(self, name: str) -> str:
        """Where a file is."""
        return str(Path(self.path) / name)

    def get(self, name: str) -> pa.Table:
        raise NotImplementedError("the lake reads it")

    def remove(self, names: Sequence[str]) -> None:
        """Nothing: they belong to the lake."""

    def clean(self) -> None:
        """Nothing: ``remove_strays`` knows which belong to nobody."""

    def note(self, text: str) -> None:
        raise NotImplementedError

    def noted(self) -> str | None:
        raise NotImplementedError


def remove_strays(folder: Path, known: Iterable[str]) -> None:
    """Remove files that no lake knows: their driver died before it added them."""
    names = {Path(path).name for path in known}
    if folder.is_dir():
        for file in folder.iterdir():
            if file.name not in names:
                file.unlink(missing_ok=True)
