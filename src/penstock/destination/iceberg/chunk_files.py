"""Copied rows as Parquet files of an Iceberg table, which then takes them over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.schema import Schema

from penstock.destination.families.staged_merge.stage import ChunkStage
from penstock.destination.families.target import Target
from penstock.destination.iceberg.columns import arrow_types, names_of
from penstock.destination.iceberg.written_files import FileWriter

# What opens a store; the rest opens the catalogue, which executors have no business with.
_STORAGE = ("s3.", "gcs.", "adls.", "hdfs.", "oss.", "client.", "py-io-impl")


def storage_properties(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name.startswith(_STORAGE)}


@dataclass(frozen=True)
class IcebergChunkFiles(ChunkStage):
    """Files that no commit names are nothing to readers. Pickled with what opens the warehouse."""

    properties: dict[str, str]
    location: str
    schema: Schema
    target: Target

    @property
    def _io(self) -> FileIO:
        return load_file_io(self.properties, self.location)

    def put(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> str:
        writer = FileWriter(self._io, self.location, self.schema)
        path = writer.path()
        writer.write(path, map(self._table_rows, pieces), self.schema)
        return path

    def _table_rows(self, rows: pa.Table) -> pa.Table:
        """In the order in which the table has its columns."""
        if not self.target.columns:
            return rows
        names = list(self.target.columns)
        rows = rows.drop_columns(["row"]).rename_columns(names)
        return rows.select([field.name for field in self.schema.fields])

    def get(self, path: str) -> pa.Table:
        """The rows of a file, in the order of the target."""
        with self._io.new_input(path).open() as stream:
            rows = pq.read_table(stream)
        return pa.table(
            [
                rows[name].cast(kind)
                for name, kind in zip(names_of(self.target), arrow_types(self.target), strict=True)
            ],
            names=list(names_of(self.target)),
        )

    def remove(self, names: Sequence[str]) -> None:
        """Nothing: once they are named they belong to the table."""
