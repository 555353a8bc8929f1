"""The ``penstock`` source with ``table``: the typed rows of one table."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import DataType, LongType, StringType, StructType

from penstock.changelog.changelog import ChangeLog
from penstock.decode.changes import ChangeSet
from penstock.decode.flat_columns import flat_table
from penstock.decode.flat_rows import flat_changes, flat_truncate
from penstock.model.errors import ConfigError, DecodeError
from penstock.model.table_schema import TableSchema


def parse_table(name: str) -> tuple[str, str]:
    """Schema and name behind the option ``table``."""
    from penstock.config.table_patterns import split_name  # source.py says why here

    try:
        return split_name(name)
    except ValueError as error:
        raise ConfigError(f"option table of the penstock source: {error}") from None


def find_table(log: ChangeLog, name: str) -> TableSchema:
    """The newest definition of a table that the log has seen."""
    wanted = parse_table(name)
    tables = log.tables()
    for table in reversed(tables):
        if (table.schema, table.name) == wanted:
            return table
    seen = ", ".join(sorted(table.qualified_name for table in tables)) or "none yet"
    raise ConfigError(
        f"the change log in {log.root.path} knows no table {name!r}; it has seen: {seen}",
        remedy="capture announces a table with its first change",
    )


def spark_schema(table: TableSchema) -> StructType:
    """The table's columns in Spark's types, then what is known of the change."""
    return as_spark_schema(flat_table(table).schema)


def as_spark_schema(schema: pa.Schema) -> StructType:
    """The columns of flat rows in Spark's types."""
    result = StructType()
    for field in schema:
        result = result.add(field.name, _spark_type(field.type))
    return result


def _spark_type(kind: pa.DataType) -> DataType:
    # Spark has no unsigned numbers.
    if kind == pa.uint32():
        return LongType()
    if kind == pa.uint64():
        return StringType()
    return from_arrow_type(kind)


def record_batches(
    changes: ChangeSet, name: tuple[str, str], query_schema: StructType
) -> Iterator[pa.RecordBatch]:
    """The changes of one table; TRUNCATE comes as a row without values."""
    schema = to_arrow_schema(query_schema)
    for part in changes.tables:
        if (part.table.schema, part.table.name) == name:
            _check_schema(part.table, query_schema)
            yield from flat_changes(part).cast(schema).to_batches()
    for event in changes.truncates:
        for table in event.tables:
            if (table.schema, table.name) == name:
                _check_schema(table, query_schema)
                yield from flat_truncate(table, event).cast(schema).to_batches()


def _check_schema(table: TableSchema, query_schema: StructType) -> None:
    if spark_schema(table) != query_schema:
        raise DecodeError(
            f"{table.qualified_name} has other columns in the stream than when this query began, "
            "and Spark cannot change the schema of a running query",
            remedy="start the query again: it goes on from its checkpoint with the new columns",
        )
