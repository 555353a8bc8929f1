"""Parquet files of a table, and what its manifests say of them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.io import FileIO
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from penstock.destination.iceberg.columns import arrow_schema
from penstock.destination.iceberg.partitions import WHOLE, TablePartition, split_rows

Ints = npt.NDArray[np.int64]

ROW_GROUP = 2**17
# Ids that the specification gives the columns of files of positions.
_POSITIONS = Schema(
    NestedField(2147483546, "file_path", StringType(), required=True),
    NestedField(2147483545, "pos", LongType(), required=True),
)
_BOUNDS_OF_KEYS = {"write.metadata.metrics.default": "truncate(16)"}


@dataclass(frozen=True)
class FileWriter:
    """Writes files to where a table's data is."""

    io: FileIO
    location: str
    schema: Schema
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC

    @classmethod
    def of(cls, table: Table) -> FileWriter:
        return cls(table.io, table.location(), table.schema(), table.spec())

    def data(self, rows: pa.Table) -> list[DataFile]:
        """A file for the rows of each partition."""
        return [
            file
            for partition, part in split_rows(rows, self.schema, self.spec)
            for file in self.data_files([part], np.inf, partition)
        ]

    def data_files(
        self, pieces: Iterable[pa.Table], most_bytes: float, partition: TablePartition
    ) -> list[DataFile]:
        """Rows of one partition as files, each closed once it is so large."""
        return [
            described(path, size, metadata, self.schema, partition)
            for path, size, metadata in self._written(pieces, self.schema, most_bytes)
        ]

    def keys(self, keys: pa.Table, ids: Sequence[int]) -> DataFile:
        """The keys of rows that go, as a file of equality deletes. Of no partition: the row may be
        in any.
        """
        schema = Schema(*(self.schema.find_field(number) for number in ids))
        ((path, size, metadata),) = self._written([keys], schema, np.inf)
        content = DataFileContent.EQUALITY_DELETES
        return described(path, size, metadata, schema, WHOLE, content, list(ids))

    def positions(self, found: Iterable[tuple[str, Ints]], partition: TablePartition) -> DataFile:
        """The places of rows that go from files of one partition, as a file of position deletes."""
        ordered = sorted(found, key=lambda pair: pair[0])
        paths = pa.concat_arrays([pa.repeat(path, len(places)) for path, places in ordered])
        places = pa.array(np.concatenate([np.sort(places) for _, places in ordered]))
        rows = pa.table([paths, places], names=["file_path", "pos"])
        ((path, size, metadata),) = self._written([rows], _POSITIONS, np.inf)
        content = DataFileContent.POSITION_DELETES
        return described(path, size, metadata, _POSITIONS, partition, content)

    def path(self) -> str:
        """Where a file goes, under a name that nobody else has."""
        return f"{self.location.rstrip('/')}/data/{uuid.uuid4().hex}.parquet"

    def write(self, path: str, pieces: Iterable[pa.Table], schema: Schema) -> None:
        """One file at a path."""
        for _ in self._written(pieces, schema, np.inf, path):
            pass

    def _written(
        self, pieces: Iterable[pa.Table], schema: Schema, most_bytes: float, path: str = ""
    ) -> Iterator[tuple[str, int, Any]]:
        own = arrow_schema(schema)
        rest = iter(pieces)
        piece = next(rest, None)
        while piece is not None:
            where, collected = path or self.path(), list[Any]()
            with self.io.new_output(where).create() as stream:
                with pq.ParquetWriter(
                    stream,
                    own,
                    compression="zstd",
                    store_decimal_as_integer=True,
                    metadata_collector=collected,
                ) as writer:
                    while piece is not None:
                        # By their places: a column may have got another name meanwhile.
                        rows = pa.table(
                            [_fit(c, f) for c, f in zip(piece.columns, own, strict=True)],
                            schema=own,
                        )
                        writer.write_table(rows, row_group_size=ROW_GROUP)
                        piece = next(rest, None)
                        if stream.tell() > most_bytes:
                            break
                size = stream.tell()
            yield where, size, collected[0]


def _fit(column: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    """The same values; elements of lists have another name in files."""
    return column if column.type == field.type else column.cast(field.type)


def described(
    path: str,
    size: int,
    metadata: pq.FileMetaData,
    schema: Schema,
    partition: TablePartition,
    content: DataFileContent = DataFileContent.DATA,
    equality_ids: list[int] | None = None,
) -> DataFile:
    """What a manifest says of a file."""
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=metadata,
        stats_columns=compute_statistics_plan(schema, _BOUNDS_OF_KEYS),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    file = DataFile.from_args(
        content=content,
        file_path=path,
        file_format=FileFormat.PARQUET,
        partition=partition.record,
        file_size_in_bytes=size,
        sort_order_id=None,
        equality_ids=equality_ids,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )
    file.spec_id = partition.spec_id
    return file


def described_at(io: FileIO, path: str, schema: Schema, spec: PartitionSpec) -> DataFile:
    """The same of a data file that somebody else wrote, with rows of one partition."""
    source = io.new_input(path)
    with source.open() as stream:
        file = pq.ParquetFile(stream)
        partition = TablePartition(spec.spec_id)
        if not spec.is_unpartitioned():
            first = next(file.iter_batches(batch_size=1))
            ((partition, _),) = split_rows(pa.Table.from_batches([first]), schema, spec)
        return described(path, len(source), file.metadata, schema, partition)
