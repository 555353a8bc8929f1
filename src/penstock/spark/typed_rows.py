"""The ``penstock`` source with ``table``: the typed rows of one table."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.changelog.changelog import ChangeLog
from penstock.config.table_patterns import split_name
from penstock.decode import flat
from penstock.decode.changes import ChangeSet
from penstock.decode.typed import TypedColumn, arrow_type
from penstock.errors import ConfigError, DecodeError
from penstock.spark.envelope import conform, stamps
from penstock.table_schema import ColumnSchema, TableSchema

_TEXT_MAP = MapType(StringType(), StringType())

_META = (
    StructField("_op", StringType()),
    StructField("_commit_lsn", LongType()),
    StructField("_ordinal", LongType()),
    StructField("_lsn", LongType()),
    StructField("_xid", LongType()),
    StructField("_commit_ts", TimestampType()),
    StructField("_unset", ArrayType(StringType())),
    StructField("_raw", _TEXT_MAP),
    StructField("_old", _TEXT_MAP),
)


def parse_table(name: str) -> tuple[str, str]:
    """Schema and name behind the option ``table``."""
    try:
        return split_name(name)
    except ValueError as error:
        raise ConfigError(f"option table of the penstock source: {error}") from None


def find_table(log: ChangeLog, name: str) -> TableSchema:
    """The newest definition of a table that the log has seen."""
    wanted = parse_table(name)
    tables = log.tables()
    for table in tables:
        if (table.schema, table.name) == wanted:
            return table
    seen = ", ".join(sorted(table.qualified_name for table in tables)) or "none yet"
    raise ConfigError(
        f"the change log in {log.root.path} knows no table {name!r}; it has seen: {seen}",
        remedy="capture announces a table with its first change",
    )


def spark_schema(table: TableSchema) -> StructType:
    """The table's columns in Spark's types, then what is known of the change."""
    schema = StructType()
    for column in table.columns:
        kind = spark_arrow_type(column)
        schema = schema.add(column.name, StringType() if kind is None else from_arrow_type(kind))
    for field in _META:
        schema = schema.add(field)
    return schema


def spark_arrow_type(column: ColumnSchema) -> pa.DataType | None:
    """The Arrow type of a column as Spark can take it; None where only text is exact."""
    kind = arrow_type(column.type, column.typmod)
    if kind == pa.uint32():
        return pa.int64()
    return kind if _fits(kind) else None


def _fits(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return _fits(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType) or pa.types.is_unsigned_integer(kind):
        return False
    return not (
        pa.types.is_interval(kind)
        or pa.types.is_time(kind)
        or pa.types.is_decimal256(kind)
        or pa.types.is_fixed_size_binary(kind)
    )


def record_batches(
    changes: ChangeSet, name: tuple[str, str], query_schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The changes of one table; TRUNCATE comes as a row without values."""
    schema = to_arrow_schema(query_schema)
    for table in changes.tables:
        if (table.table.schema, table.table.name) != name:
            continue
        if spark_schema(table.table) != query_schema:
            raise DecodeError(
                f"{table.table.qualified_name} has other columns in the stream than when this "
                "query began, and Spark cannot change the schema of a running query",
                remedy="start the query again: it goes on from its checkpoint with the new columns",
            )
        typed: dict[int, TypedColumn] = {}
        columns = {}
        for index, column in enumerate(table.table.columns):
            if spark_arrow_type(column) is None:
                columns[column.name] = flat.text(table, index)
            else:
                typed[index] = flat.typed(table, index)
                columns[column.name] = typed[index].values
        columns |= stamps(table, "_")
        columns["_unset"] = flat.unset_names(table)
        columns["_raw"] = flat.raw(table, typed)
        columns["_old"] = flat.old_map(table, with_deletes=False)
        yield conform(columns, len(table), schema)
    rare = [
        {
            "_op": "truncate",
            "_commit_lsn": event.stamp.position.commit_lsn,
            "_ordinal": event.stamp.position.ordinal,
            "_lsn": event.stamp.lsn,
            "_xid": event.stamp.xid,
            "_commit_ts": event.stamp.commit_micros,
            "_unset": [],
        }
        for event in changes.truncates
        if any((table.schema, table.name) == name for table in event.tables)
    ]
    if rare:
        yield pa.RecordBatch.from_pylist(rare, schema)
