"""Partitions of tables: what the pipeline file says of them, and which rows are in which."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.manifest import DataFile, ManifestEntry
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.typedef import Record

from penstock.destination.families.target import Target
from penstock.destination.iceberg.options import PARTITIONING
from penstock.model.errors import TableRefused

_FIRST_FIELD = 1000
_SPEC = 1
_HOUR = 3_600_000_000
_TIMES: dict[str, Callable[[], Transform[Any, Any]]] = {
    "year": YearTransform,
    "month": MonthTransform,
    "day": DayTransform,
    "hour": HourTransform,
}


@dataclass(frozen=True)
class TablePartition:
    """One partition of a table, under one of its specs. Spec 0 has none but this."""

    spec_id: int = 0
    values: tuple[Any, ...] = ()

    @classmethod
    def of(cls, file: DataFile) -> TablePartition:
        values = file.partition
        return cls(file.spec_id or 0, tuple(values[place] for place in range(len(values))))

    @property
    def record(self) -> Record:
        return Record(*self.values)


WHOLE = TablePartition()
"""Of tables without partitions, and of deletes that hold for all partitions."""


def by_partition(entries: Iterable[ManifestEntry]) -> dict[TablePartition, list[ManifestEntry]]:
    """The files of each partition."""
    found: dict[TablePartition, list[ManifestEntry]] = {}
    for entry in entries:
        found.setdefault(TablePartition.of(entry.data_file), []).append(entry)
    return found


def partition_spec(target: Target, schema: Schema, wanted: Sequence[str]) -> PartitionSpec:
    """The spec of a table that is new. Raises TableRefused where it lacks a column, or a column's
    type does not take the transform.
    """
    fields = []
    for number, text in enumerate(wanted):
        found = PARTITIONING.fullmatch(text)
        assert found is not None  # noqa: S101 (the options were checked)
        transform, column = _transform(found["by"], found["width"]), found["column"]
        names = {field.name: field for field in schema.fields}
        if column not in names or not transform.can_transform(names[column].field_type):
            raise TableRefused(
                f"table {target.qualified_name} cannot be partitioned by {text}: "
                + (
                    f"it has no column {column}"
                    if column not in names
                    else f"column {column} is of another type"
                ),
                remedy="correct destination.partition in the pipeline file, then run "
                f"`penstock tables retry` for {target.qualified_name}",
                table=target.oid,
            )
        name = f"{column}_{found['by'] or 'is'}"
        fields.append(
            PartitionField(names[column].field_id, _FIRST_FIELD + number, transform, name)
        )
    return PartitionSpec(*fields, spec_id=_SPEC)


def _transform(by: str | None, width: str | None) -> Transform[Any, Any]:
    if by is None:
        return IdentityTransform()
    if by in _TIMES:
        return _TIMES[by]()
    return (
        BucketTransform(int(width or 0)) if by == "bucket" else TruncateTransform(int(width or 0))
    )


def split_rows(
    rows: pa.Table, schema: Schema, spec: PartitionSpec
) -> Iterator[tuple[TablePartition, pa.Table]]:
    """The rows of each partition. Columns stand as in the schema, whatever they are called."""
    if spec.is_unpartitioned() or not rows.num_rows:
        yield TablePartition(spec.spec_id), rows
        return
    places = {field.field_id: place for place, field in enumerate(schema.fields)}
    codes, values = [], []
    for field in spec.fields:
        kind = schema.find_type(field.source_id)
        code, found = _transformed(rows.column(places[field.source_id]), field.transform, kind)
        codes.append(code)
        values.append(found)
    distinct, inverse = np.unique(np.stack(codes), axis=1, return_inverse=True)
    inverse = inverse.ravel()
    for number in range(distinct.shape[1]):
        picked = tuple(found[code] for found, code in zip(values, distinct[:, number], strict=True))
        yield TablePartition(spec.spec_id, picked), rows.filter(pa.array(inverse == number))


def _transformed(
    column: pa.ChunkedArray, transform: Transform[Any, Any], kind: Any
) -> tuple[np.ndarray, list[Any]]:
    """Which of the values that are returned each row has in its partition."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64())
        if not isinstance(transform, IdentityTransform | BucketTransform):
            # What counts by hours, or more, has few values.
            hours = pa.compute.floor(pa.compute.divide(column.cast(pa.float64()), float(_HOUR)))
            column = pa.compute.multiply(hours.cast(pa.int64()), _HOUR)
    elif pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    coded = column.combine_chunks().dictionary_encode(null_encoding="encode")
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.combine_chunks()
    function = transform.transform(kind)
    turned = [function(value) for value in coded.dictionary.to_pylist()]
    found: dict[Any, int] = {}
    numbers = np.array([found.setdefault(value, len(found)) for value in turned], np.int64)
    return numbers[coded.indices.to_numpy()], list(found)
