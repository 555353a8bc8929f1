"""Copied rows as Parquet files that a table takes over as they are."""

from __future__ import annotations

import uuid
from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from penstock.destination.families import durable
from penstock.destination.families.staged_merge.stage import ChunkStage


@dataclass(frozen=True)
class ParquetChunks(ChunkStage):
    """Files in a folder, durable before anybody is told of them: a commit names them."""

    path: str

    @abstractmethod
    def table_rows(self, rows: pa.Table) -> pa.Table:
        """Staged rows as the table has them."""

    def put(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> str:
        name = f"{uuid.uuid4().hex}.parquet"
        folder = Path(self.path)
        with durable.explained(folder):
            durable.make_folders([folder])
            own = self.table_rows(schema.empty_table()).schema
            with pq.ParquetWriter(folder / name, own, compression="zstd") as writer:
                for piece in pieces:
                    writer.write_table(self.table_rows(piece))
            durable.sync_all([folder / name, folder])
        return name

    def remove(self, names: Sequence[str]) -> None:
        """Nothing: once they are named they belong to the table."""
