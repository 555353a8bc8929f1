"""Columns of Iceberg tables: field ids, and their types in Iceberg and in Arrow.

A column's field id is its number in the source (attnum), so it is the same for as long as it lives,
whatever it is called. Where it becomes of another type that Iceberg cannot turn the old one into,
it gets the next id that belongs to its number.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    TimestampType,
    TimestamptzType,
)

from penstock.destination.families.staged_merge.typed_columns import NO_COLUMNS, EngineTypes
from penstock.destination.families.target import Target
from penstock.model.table_definition import TableDefinition

TYPES = EngineTypes(
    has_time=False, has_uuid=False, has_unsigned=False, is_endless=False, has_small=False
)

_NUMBERS = 4096
"""Of each column: its own id, and behind the first half that of its elements. A table has at most
1,600 columns.
"""
_ELEMENT = _NUMBERS // 2
_FIELD_ID = b"PARQUET:field_id"
_PLAIN: dict[pa.DataType, IcebergType] = {
    pa.bool_(): BooleanType(),
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float32(): FloatType(),
    pa.float64(): DoubleType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.date32(): DateType(),
}


def names_of(target: Target) -> tuple[str, ...]:
    """The columns of the table in the lake; never none."""
    return target.columns or (NO_COLUMNS,)


def arrow_types(target: Target) -> list[pa.DataType]:
    return [TYPES.arrow(plain) for plain in target.types] or [pa.bool_()]


def numbers_of(table: TableDefinition, target: Target) -> dict[str, int]:
    """The number of each column."""
    found = {column.name: column.attnum for column in table.columns if column.is_delivered}
    return {name: found.get(name, _ELEMENT - 1) for name in names_of(target)}


def iceberg_schema(target: Target, ids: Mapping[str, int]) -> Schema:
    """The schema of a table whose columns have these field ids."""
    fields = []
    for name, kind in zip(names_of(target), arrow_types(target), strict=True):
        fields.append(NestedField(ids[name], name, _iceberg(kind, ids[name] + _ELEMENT)))
    return Schema(*fields)


def _iceberg(kind: pa.DataType, element_id: int) -> IcebergType:
    if pa.types.is_list(kind):
        element = _iceberg(kind.value_type, 0)
        return ListType(element_id, element, element_required=False)
    if pa.types.is_decimal(kind):
        return DecimalType(kind.precision, kind.scale)
    if pa.types.is_timestamp(kind):
        return TimestampType() if kind.tz is None else TimestamptzType()
    return _PLAIN[kind]


def field_ids(schema: Schema) -> dict[str, int]:
    return {field.name: field.field_id for field in schema.fields}


def next_id(before: int) -> int:
    """The id of a column that had ``before`` and is of another type now."""
    return before + _NUMBERS


def arrow_schema(schema: Schema) -> pa.Schema:
    """As files have it, with field ids."""
    return pa.schema([_arrow_field(field) for field in schema.fields])


def _arrow_field(field: NestedField) -> pa.Field:
    kind = field.field_type
    if isinstance(kind, ListType):
        element = _arrow_field(NestedField(kind.element_id, "element", kind.element_type))
        return _with_id(field.name, pa.list_(element), field.field_id)
    return _with_id(field.name, _arrow(kind), field.field_id)


def _with_id(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={_FIELD_ID: str(number).encode()})


def _arrow(kind: IcebergType) -> pa.DataType:
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    if isinstance(kind, TimestampType | TimestamptzType):
        return pa.timestamp("us", None if isinstance(kind, TimestampType) else "UTC")
    return next(arrow for arrow, plain in _PLAIN.items() if plain == kind)


def file_columns(schema: pa.Schema) -> dict[int, str]:
    """The columns of a Parquet file by their field ids."""
    ids = {field.name: (field.metadata or {}).get(_FIELD_ID) for field in schema}
    return {int(number): name for name, number in ids.items() if number is not None}


def is_widened(before: IcebergType, after: IcebergType) -> bool:
    """Whether Iceberg reads old values as the new type without writing them anew."""
    if before == after:
        return True
    if isinstance(before, DecimalType) and isinstance(after, DecimalType):
        return before.scale == after.scale and before.precision <= after.precision
    pair = (type(before), type(after))
    return pair in ((IntegerType, LongType), (FloatType, DoubleType))
