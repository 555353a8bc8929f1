"""The ``penstock`` source without ``table``: one row a change, whatever the table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.decode.changes import ChangeSet, MessageEvent, TableChanges, TruncateEvent
from penstock.decode.flat_rows import old_maps, op_names
from penstock.decode.row_lists import lists, maps
from penstock.decode.row_values import RowValues

_TEXT_MAP = MapType(StringType(), StringType())
_TEXTS = ArrayType(StringType())

SPARK_SCHEMA = StructType(
    [
        StructField("op", StringType()),
        StructField("schema", StringType()),
        StructField("table", StringType()),
        StructField("commit_lsn", LongType()),
        StructField("ordinal", LongType()),
        StructField("lsn", LongType()),
        StructField("xid", LongType()),
        StructField("commit_ts", TimestampType()),
        StructField("new", _TEXT_MAP),
        StructField("old", _TEXT_MAP),
        StructField("unset", _TEXTS),
        StructField("key_columns", _TEXTS),
        StructField("prefix", StringType()),
        StructField("content", BinaryType()),
    ]
)


@cache
def _arrow_schema() -> pa.Schema:
    """What Spark wants a batch to look like, to the letter."""
    return to_arrow_schema(SPARK_SCHEMA)


def record_batches(changes: ChangeSet) -> Iterator[pa.RecordBatch]:
    """The changes as Arrow batches: one a table, and one for what is rare."""
    for table in changes.tables:
        yield _conform(_of_table(table), len(table), _arrow_schema())
    rare = [_of_truncate(event, i) for event in changes.truncates for i in range(len(event.tables))]
    rare += [_of_message(event) for event in changes.messages]
    if rare:
        yield pa.RecordBatch.from_pylist(rare, _arrow_schema())


def _conform(columns: dict[str, Any], rows: int, schema: pa.Schema) -> pa.RecordBatch:
    """Columns by name → a batch of exactly ``schema``; a missing column is null."""
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        if values is None:
            values = pa.nulls(rows, field.type)
        elif not isinstance(values, pa.Array):
            values = pa.array(values)
        arrays.append(values if values.type == field.type else values.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _of_table(changes: TableChanges) -> dict[str, Any]:
    table, rows = changes.table, len(changes)
    values = RowValues(changes)
    columns = range(len(table.columns))
    has_new = np.zeros(rows, bool)
    has_new[changes.new_rows] = True
    unset = [values.unset(column) for column in columns]
    sent = [has_new if mask is None else has_new & ~mask for mask in unset]
    column_names = [column.name for column in table.columns]
    new = maps(column_names, [values.text(column) for column in columns], sent, rows)
    keys = pa.array([[c.name for c in table.columns if c.is_key]], pa.list_(pa.string()))
    return {
        "op": op_names(changes.op),
        "commit_lsn": changes.commit_lsn,
        "ordinal": changes.ordinal,
        "lsn": changes.lsn,
        "xid": changes.xid,
        "commit_ts": pa.array(changes.commit_micros).cast(pa.timestamp("us", "UTC")),
        "schema": pa.repeat(table.schema, rows),
        "table": pa.repeat(table.name, rows),
        "new": pc.if_else(pa.array(has_new), new, pa.scalar(None, new.type)),
        "old": old_maps(changes, values, of_deletes=True),
        "unset": lists(pa.array(column_names, pa.string()), unset, rows),
        "key_columns": keys.take(pa.array(np.zeros(rows, np.int64))),
    }


def _of_truncate(event: TruncateEvent, index: int) -> dict[str, Any]:
    table = event.tables[index]
    return {**_of_event(event), "op": "truncate", "schema": table.schema, "table": table.name}


def _of_message(event: MessageEvent) -> dict[str, Any]:
    return {
        **_of_event(event),
        "op": "message",
        "prefix": event.prefix,
        "content": event.content,
    }


def _of_event(event: TruncateEvent | MessageEvent) -> dict[str, Any]:
    stamp = event.stamp
    return {
        "commit_lsn": stamp.position.commit_lsn,
        "ordinal": stamp.position.ordinal,
        "lsn": stamp.lsn,
        "xid": stamp.xid,
        "commit_ts": pa.scalar(stamp.commit_micros, pa.timestamp("us", "UTC")).as_py(),
        "unset": [],
    }
