"""How a table's columns stand in flat rows, such that Parquet, pyarrow and Spark all hold them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa

from penstock.decode.typed import TypedColumn, arrow_field, arrow_type, decode_text
from penstock.model.pg_types import builtin_type
from penstock.model.table_schema import ColumnSchema, PgType, TableSchema

TEXTS = pa.map_(pa.string(), pa.string())

STAMP_FIELDS = (
    pa.field("_op", pa.string(), nullable=False),
    pa.field("_commit_lsn", pa.int64(), nullable=False),
    pa.field("_ordinal", pa.int64(), nullable=False),
    pa.field("_lsn", pa.int64()),
    pa.field("_xid", pa.int64()),
    pa.field("_commit_ts", pa.timestamp("us", "UTC")),
)
ROW_FIELDS = (
    pa.field("_unset", pa.list_(pa.string()), nullable=False),
    pa.field("_raw", TEXTS, nullable=False),
    pa.field("_old", TEXTS),
    pa.field("_schema_version", pa.string(), nullable=False),
)
MESSAGE_SCHEMA = pa.schema(
    [
        pa.field("prefix", pa.string(), nullable=False),
        pa.field("content", pa.binary(), nullable=False),
        pa.field("transactional", pa.bool_(), nullable=False),
        *STAMP_FIELDS,
    ]
)
# Spark tells columns apart without regard to case, and adds the one of the date folder.
_TAKEN = frozenset({"commit_date", *(field.name for field in (*STAMP_FIELDS, *ROW_FIELDS))})
# Spark reads no decimal of more digits.
_MOST_DIGITS = 38


@dataclass(frozen=True)
class FlatColumn:
    """One column: its field in the file, and the type that its text is decoded as."""

    field: pa.Field
    type: PgType
    typmod: int

    def decode(self, text: pa.Array) -> TypedColumn:
        return decode_text(text, self.type, self.typmod)


@dataclass(frozen=True)
class FlatTable:
    """One version of a table as flat rows have it."""

    columns: tuple[FlatColumn, ...]
    schema: pa.Schema


@lru_cache(maxsize=4096)
def flat_table(table: TableSchema) -> FlatTable:
    columns = []
    taken = {column.name.lower() for column in table.columns} | _TAKEN
    for column in table.columns:
        name = column.name
        if name.lower() in _TAKEN:
            while name.lower() in taken:
                name += "_"
            taken.add(name.lower())
        columns.append(_flat_column(column, name))
    fields = [column.field for column in columns]
    return FlatTable(tuple(columns), pa.schema([*fields, *STAMP_FIELDS, *ROW_FIELDS]))


def _flat_column(column: ColumnSchema, name: str) -> FlatColumn:
    pg_type, typmod = _flat_type(column.type, column.typmod)
    field = arrow_field(name, column)
    metadata = {**(field.metadata or {}), b"postgres.column": column.name.encode()}
    arrow = arrow_type(pg_type, typmod)
    return FlatColumn(field.with_type(arrow).with_metadata(metadata), pg_type, typmod)


def _flat_type(pg_type: PgType, typmod: int) -> tuple[PgType, int]:
    """The type itself, or text in the place of what Parquet or Spark cannot hold."""
    inner = pg_type.inner
    if inner is not None and pg_type.kind == "domain":
        return _flat_type(inner, pg_type.typmod)
    if inner is not None:
        stored, stored_typmod = _flat_type(inner, typmod)
        if arrow_type(stored, stored_typmod) == arrow_type(inner, typmod):
            return pg_type, typmod
        return PgType(pg_type.oid, pg_type.name, pg_type.kind, stored), stored_typmod
    return (pg_type, typmod) if _is_readable(arrow_type(pg_type, typmod)) else (_text(), -1)


def _is_readable(arrow: pa.DataType) -> bool:
    if pa.types.is_interval(arrow) or pa.types.is_time(arrow):
        return False
    if pa.types.is_fixed_size_binary(arrow) and not pa.types.is_decimal(arrow):
        return False  # uuid: readers would get sixteen bytes where everyone else has text
    return not pa.types.is_decimal(arrow) or arrow.precision <= _MOST_DIGITS


def _text() -> PgType:
    text = builtin_type(25)
    if text is None:
        raise LookupError("the type text is missing from the built-in types")
    return text


def names(columns: Sequence[ColumnSchema]) -> pa.Array:
    return pa.array([column.name for column in columns], pa.string())
