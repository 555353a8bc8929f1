"""Copied rows as Parquet files of an Iceberg table, which then takes them over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO, load_file_io
from pyiceberg.manifest import DataFile
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from penstock.destination.families.staged_merge.stage import ChunkStage
from penstock.destination.families.target import Target
from penstock.destination.iceberg.columns import arrow_types, names_of
from penstock.destination.iceberg.partitions import split_rows
from penstock.destination.iceberg.written_files import FileWriter, described_at

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
    spec: PartitionSpec
    target: Target

    @property
    def _io(self) -> FileIO:
        return load_file_io(self.properties, self.location)

    def put(self, pieces: Iterable[pa.Table], schema: pa.Schema) -> str:
        """One file, or one a partition, whose paths are the name. Then all of the chunk is held."""
        writer = FileWriter(self._io, self.location, self.schema)
        if self.spec.is_unpartitioned():
            path = writer.path()
            writer.write(path, map(self._table_rows, pieces), self.schema)
            return path
        found = [self._table_rows(piece) for piece in pieces]
        rows = pa.concat_tables(found) if found else self._table_rows(schema.empty_table())
        paths = []
        for _, part in split_rows(rows, self.schema, self.spec):
            paths.append(writer.path())
            writer.write(paths[-1], [part], self.schema)
        return "\n".join(paths)

    def _table_rows(self, rows: pa.Table) -> pa.Table:
        """In the order in which the table has its columns."""
        if not self.target.columns:
            return rows
        names = list(self.target.columns)
        rows = rows.drop_columns(["row"]).rename_columns(names)
        return rows.select([field.name for field in self.schema.fields])

    def files(self, name: str) -> list[DataFile]:
        """What manifests say of a chunk's files."""
        paths = name.split("\n")
        return [described_at(self._io, path, self.schema, self.spec) for path in paths]

    def get(self, name: str) -> pa.Table:
        """The rows of a chunk, in the order of the target."""
        tables = []
        for path in name.split("\n"):
            with self._io.new_input(path).open() as stream:
                tables.append(pq.read_table(stream))
        rows = pa.concat_tables(tables)
        return pa.table(
            [
                rows[name].cast(kind)
                for name, kind in zip(names_of(self.target), arrow_types(self.target), strict=True)
            ],
            names=list(names_of(self.target)),
        )

    def remove(self, names: Sequence[str]) -> None:
        """Nothing: once they are named they belong to the table."""
