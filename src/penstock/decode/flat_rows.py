"""Changes as flat rows, in types that Parquet, Spark and pyarrow all hold.

A row shows the state after a change, or for a delete what is known of the row that went: the
table's columns in their types, and what else is known in columns that begin with ``_``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.decode.changes import Stamp, TableChanges, TruncateEvent
from penstock.decode.flat_columns import TEXTS, flat_table, names
from penstock.decode.row_lists import lists, maps
from penstock.decode.row_values import RowValues
from penstock.model.errors import DecodeError
from penstock.model.table_schema import TableSchema
from penstock.pgoutput import tuples

_OPS = {tuples.INSERT: "insert", tuples.UPDATE: "update", tuples.DELETE: "delete"}
_TIME = pa.timestamp("us", "UTC")


def flat_changes(changes: TableChanges) -> pa.Table:
    """One row a change, in the schema of ``flat_table``."""
    table, count = changes.table, len(changes)
    values = RowValues(changes)
    texts = [values.text(column) for column in range(len(table.columns))]
    unset = [values.unset(column) for column in range(len(table.columns))]
    columns, raw = decode_columns(table, texts, count)
    columns += [
        op_names(changes.op),
        pa.array(changes.commit_lsn),
        pa.array(changes.ordinal),
        pa.array(changes.lsn),
        pa.array(changes.xid),
        pa.array(changes.commit_micros).cast(_TIME),
        lists(names(table.columns), unset, count),
        raw,
        old_maps(changes, values, of_deletes=False),
        pa.repeat(table.fingerprint, count),
    ]
    return pa.Table.from_arrays(columns, schema=flat_table(table).schema)


def flat_truncate(table: TableSchema, event: TruncateEvent) -> pa.Table:
    """One row without values that says that the table was emptied."""
    flat = flat_table(table)
    columns = [pa.nulls(1, column.field.type) for column in flat.columns]
    columns += stamp_columns("truncate", [event.stamp])
    columns += row_columns(table, 1, maps([], [], [], 1))
    return pa.Table.from_arrays(columns, schema=flat.schema)


def decode_columns(
    table: TableSchema, texts: Sequence[pa.Array], count: int
) -> tuple[list[pa.Array], pa.Array]:
    """The columns in their types, and as maps the texts that these types cannot hold."""
    columns, odd_names, odd_texts, odd = [], [], [], []
    definitions = zip(table.columns, flat_table(table).columns, texts, strict=True)
    for definition, flat, text in definitions:
        try:
            typed = flat.decode(text)
        except DecodeError as error:
            place = f"table {table.qualified_name}, column {definition.name}"
            raise DecodeError(f"{place}: {error.message}", remedy=error.remedy) from None
        columns.append(typed.values)
        if typed.unrepresentable is not None:
            odd_names.append(definition.name)
            odd_texts.append(text)
            odd.append(typed.unrepresentable.to_numpy(zero_copy_only=False))
    return columns, maps(odd_names, odd_texts, odd, count)


def old_maps(changes: TableChanges, values: RowValues, *, of_deletes: bool) -> pa.Array:
    """Old images as maps, column → text, as far as they were sent; null where there is none."""
    count = len(changes)
    wanted = changes.op[changes.old_rows] == tuples.UPDATE
    if of_deletes:
        wanted = np.ones(len(changes.old_rows), bool)
    if not wanted.any():
        return pa.nulls(count, TEXTS)
    columns = range(len(changes.table.columns))
    images = maps(
        [column.name for column in changes.table.columns],
        [changes.old_text(column) for column in columns],
        [values.old_has(column) for column in columns],
        len(changes.old_rows),
    )
    source = np.zeros(count, np.int64)
    source[changes.old_rows] = np.arange(len(changes.old_rows))
    missing = np.ones(count, bool)
    missing[changes.old_rows[wanted]] = False
    return images.take(pa.array(source, mask=missing))


def op_names(op: npt.NDArray[np.uint8]) -> pa.Array:
    number = np.zeros(256, np.int8)
    number[list(_OPS)] = range(len(_OPS))
    return pa.array(list(_OPS.values())).take(pa.array(number[op]))


def stamp_columns(op: str, stamps: Sequence[Stamp]) -> list[pa.Array]:
    return [
        pa.repeat(op, len(stamps)),
        pa.array([stamp.position.commit_lsn for stamp in stamps], pa.int64()),
        pa.array([stamp.position.ordinal for stamp in stamps], pa.int64()),
        pa.array([stamp.lsn for stamp in stamps], pa.int64()),
        pa.array([stamp.xid or None for stamp in stamps], pa.int64()),
        pa.array([stamp.commit_micros for stamp in stamps], pa.int64()).cast(_TIME),
    ]


def row_columns(table: TableSchema, count: int, raw: pa.Array) -> list[pa.Array]:
    return [
        lists(names(()), [], count),
        raw,
        pa.nulls(count, TEXTS),
        pa.repeat(table.fingerprint, count),
    ]
