"""Rows as Parquet: the table's columns in their types, and what else is known in ``_`` columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from penstock.decode.changes import MessageEvent, Stamp, TableChanges, TruncateEvent
from penstock.destination.contract import TableRows
from penstock.destination.encode.row_values import READ_ORDINAL, Mask, RowValues
from penstock.destination.files.stored_columns import MESSAGE_SCHEMA, TEXTS, names, stored_table
from penstock.errors import DecodeError
from penstock.pgoutput import tuples
from penstock.table_schema import TableSchema

_OPS = {tuples.INSERT: "insert", tuples.UPDATE: "update", tuples.DELETE: "delete"}
_TIME = pa.timestamp("us", "UTC")


class ParquetEncoding:
    """See rows.Encoding."""

    suffix = ".parquet"

    def changes(self, changes: TableChanges) -> pa.Table:
        table, count = changes.table, len(changes)
        values = RowValues(changes)
        texts = [values.text(column) for column in range(len(table.columns))]
        unset = [values.unset(column) for column in range(len(table.columns))]
        columns, raw = _decode(table, texts, count)
        columns += [
            _op_names(changes.op),
            pa.array(changes.commit_lsn),
            pa.array(changes.ordinal),
            pa.array(changes.lsn),
            pa.array(changes.xid),
            pa.array(changes.commit_micros).cast(_TIME),
            _lists(names(table.columns), unset, count),
            raw,
            _old(changes, values),
            _repeat(table.fingerprint, count),
        ]
        return pa.Table.from_arrays(columns, schema=stored_table(table).schema)

    def truncate(self, table: TableSchema, event: TruncateEvent) -> pa.Table:
        stored = stored_table(table)
        columns = [pa.nulls(1, column.field.type) for column in stored.columns]
        columns += _stamp_columns("truncate", [event.stamp])
        columns += _row_columns(table, 1, _maps([], [], [], 1))
        return pa.Table.from_arrays(columns, schema=stored.schema)

    def messages(self, events: Sequence[MessageEvent]) -> pa.Table:
        columns = [
            pa.array([event.prefix for event in events], pa.string()),
            pa.array([event.content for event in events], pa.binary()),
            pa.array([event.transactional for event in events]),
            *_stamp_columns("message", [event.stamp for event in events]),
        ]
        return pa.Table.from_arrays(columns, schema=MESSAGE_SCHEMA)

    def read(self, rows: TableRows) -> pa.Table:
        table, count = rows.table, len(rows)
        columns, raw = _decode(table, rows.columns, count)
        columns += [
            _repeat("read", count),
            pa.repeat(pa.scalar(rows.snapshot.commit_lsn, pa.int64()), count),
            pa.repeat(pa.scalar(READ_ORDINAL, pa.int64()), count),
            pa.nulls(count, pa.int64()),
            pa.nulls(count, pa.int64()),
            pa.nulls(count, _TIME),
            *_row_columns(table, count, raw),
        ]
        return pa.Table.from_arrays(columns, schema=stored_table(table).schema)


def _decode(
    table: TableSchema, texts: Sequence[pa.Array], count: int
) -> tuple[list[pa.Array], pa.Array]:
    """The columns in their types, and as maps the texts that these types cannot hold."""
    columns, odd_names, odd_texts, odd = [], [], [], []
    definitions = zip(table.columns, stored_table(table).columns, texts, strict=True)
    for definition, stored, text in definitions:
        try:
            typed = stored.decode(text)
        except DecodeError as error:
            place = f"table {table.qualified_name}, column {definition.name}"
            raise DecodeError(f"{place}: {error.message}", remedy=error.remedy) from None
        columns.append(typed.values)
        if typed.unrepresentable is not None:
            odd_names.append(definition.name)
            odd_texts.append(text)
            odd.append(typed.unrepresentable.to_numpy(zero_copy_only=False))
    return columns, _maps(odd_names, odd_texts, odd, count)


def _old(changes: TableChanges, values: RowValues) -> pa.Array:
    """The old images of updates as maps; null elsewhere: a delete's is in its columns."""
    count = len(changes)
    updates = changes.op[changes.old_rows] == tuples.UPDATE
    if not updates.any():
        return pa.nulls(count, TEXTS)
    columns = range(len(changes.table.columns))
    maps = _maps(
        [column.name for column in changes.table.columns],
        [changes.old_text(column) for column in columns],
        [values.old_has(column) for column in columns],
        len(changes.old_rows),
    )
    source = np.zeros(count, np.int64)
    source[changes.old_rows] = np.arange(len(changes.old_rows))
    missing = np.ones(count, bool)
    missing[changes.old_rows[updates]] = False
    return maps.take(pa.array(source, mask=missing))


def _op_names(op: npt.NDArray[np.uint8]) -> pa.Array:
    number = np.zeros(256, np.int8)
    number[list(_OPS)] = range(len(_OPS))
    return pa.array(list(_OPS.values())).take(pa.array(number[op]))


def _stamp_columns(op: str, stamps: Sequence[Stamp]) -> list[pa.Array]:
    return [
        _repeat(op, len(stamps)),
        pa.array([stamp.position.commit_lsn for stamp in stamps], pa.int64()),
        pa.array([stamp.position.ordinal for stamp in stamps], pa.int64()),
        pa.array([stamp.lsn for stamp in stamps], pa.int64()),
        pa.array([stamp.xid or None for stamp in stamps], pa.int64()),
        pa.array([stamp.commit_micros for stamp in stamps], pa.int64()).cast(_TIME),
    ]


def _row_columns(table: TableSchema, count: int, raw: pa.Array) -> list[pa.Array]:
    return [
        _lists(names(()), [], count),
        raw,
        pa.nulls(count, TEXTS),
        _repeat(table.fingerprint, count),
    ]


def _lists(values: pa.Array, present: Sequence[Mask | None], count: int) -> pa.Array:
    """For each row the values whose mask is true there."""
    numbers = [number for number, mask in enumerate(present) if mask is not None]
    rows, which = _entries([present[number] for number in numbers], count)
    picked = values.take(pa.array(np.array(numbers, np.int64)[which]))
    return pa.ListArray.from_arrays(pa.array(_offsets(rows, count)), picked)


def _maps(
    keys: Sequence[str], texts: Sequence[pa.Array], present: Sequence[Mask], count: int
) -> pa.Array:
    """For each row the keys whose mask is true there, with their texts."""
    rows, which = _entries(present, count)
    picked = pa.array(keys, pa.string()).take(pa.array(which))
    items = pa.concat_arrays(texts).take(pa.array(which * count + rows)) if len(rows) else picked
    return pa.MapArray.from_arrays(pa.array(_offsets(rows, count)), picked, items)


def _entries(
    masks: Sequence[Mask | None], count: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Rows and numbers of the masks that are true, row by row."""
    if not masks:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    rows, which = np.nonzero(np.stack(masks, axis=1))  # type: ignore[arg-type]
    return rows, which


def _offsets(rows: npt.NDArray[np.int64], count: int) -> npt.NDArray[np.int32]:
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(rows, minlength=count), out=offsets[1:])
    return offsets


def _repeat(text: str, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(text, pa.string()), count)
