"""Columns of a table as SQL that ADBC reads into Arrow, and from there to what was asked for.

What ADBC reads exactly comes as it is; everything else comes as Postgres text, for the decoders of
the stream. Both give the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from psycopg import sql

from penstock.decode.flat_columns import FlatColumn, flat_table
from penstock.decode.row_lists import maps
from penstock.decode.row_values import Mask
from penstock.model.errors import DecodeError
from penstock.model.pg_types import FIRST_USER_OID
from penstock.model.table_schema import ColumnSchema, PgType, TableSchema

_BOOL, _BYTEA, _CHAR, _INT8, _INT2, _INT4, _TEXT = 16, 17, 18, 20, 21, 23, 25
_JSON, _XML, _CIDR, _FLOAT4, _FLOAT8, _INET = 114, 142, 650, 700, 701, 869
_BPCHAR, _VARCHAR = 1042, 1043
_DATE, _TIMESTAMP, _TIMESTAMPTZ, _JSONB = 1082, 1114, 1184, 3802

_ELEMENTS = frozenset(
    {_BOOL, _INT2, _INT4, _INT8, _FLOAT4, _FLOAT8, _TEXT, _BPCHAR, _VARCHAR},
)
_NATIVE = _ELEMENTS | {_BYTEA, _JSON, _JSONB}
_STRINGS = frozenset({_TEXT, _BPCHAR, _VARCHAR})
# A cast to text is a function of its own here and does not give what the type's output gives:
# true for t, 10.0.0.1/32 for 10.0.0.1, no blanks at the end of char(n), another head of an xml.
_CAST_DIFFERS = frozenset({_BOOL, _CHAR, _XML, _CIDR, _INET, _BPCHAR})


@dataclass(frozen=True)
class Decoded:
    """Values; where ``odd`` is true, one is null only because its type cannot hold it, and has its
    place in ``texts``.
    """

    values: pa.Array
    odd: Mask | None = None
    texts: pa.Array = None


@dataclass(frozen=True)
class ArrowColumn:
    """``expressions`` are what to select; ``decode`` makes the column of them."""

    name: str
    expressions: tuple[sql.Composable, ...]
    decode: Callable[[Sequence[pa.Array]], Decoded]


def as_text(column: ColumnSchema) -> sql.Composable:
    """The column as the text that the stream has of it, whatever casts its type has."""
    name = sql.Identifier(column.name)
    oid = _base(column.type).oid
    if oid in _STRINGS:
        return name
    if oid < FIRST_USER_OID and oid not in _CAST_DIFFERS:
        return sql.SQL("{}::pg_catalog.text").format(name)
    # Every type's output function, also where a cast to text is somebody's own. A composite value
    # of nulls is not null itself, which IS NULL does not tell.
    return sql.SQL("CASE WHEN {0} IS DISTINCT FROM NULL THEN pg_catalog.concat({0}) END").format(
        name
    )


def typed_schema(table: TableSchema) -> pa.Schema:
    """The table's columns as flat rows have them; then ``_raw``, with the texts of what they cannot
    hold.
    """
    flat = flat_table(table)
    return pa.schema([*(column.field for column in flat.columns), flat.schema.field("_raw")])


def typed_columns(table: TableSchema) -> list[ArrowColumn]:
    return [
        _typed_column(column, flat)
        for column, flat in zip(table.columns, flat_table(table).columns, strict=True)
    ]


def typed_batch(
    schema: pa.Schema, columns: Sequence[ArrowColumn], arrays: Sequence[pa.Array], count: int
) -> pa.RecordBatch:
    """``arrays`` are what the expressions of all columns gave, in their order."""
    given = iter(arrays)
    decoded = {
        column.name: column.decode([_storage(next(given)) for _ in column.expressions])
        for column in columns
    }
    values = [each.values for each in decoded.values()]
    return pa.RecordBatch.from_arrays([*values, _raw(decoded, count)], schema=schema)


def _raw(decoded: Mapping[str, Decoded], count: int) -> pa.Array:
    odd = {name: each for name, each in decoded.items() if each.odd is not None}
    if not odd:
        return _empty_maps(1 << count.bit_length()).slice(0, count)
    return maps(
        list(odd),
        [each.texts for each in odd.values()],
        [each.odd for each in odd.values() if each.odd is not None],
        count,
    )


@lru_cache(maxsize=4)
def _empty_maps(count: int) -> pa.Array:
    """Made once, as nearly all batches need it."""
    return maps([], [], [], count)


def _typed_column(column: ColumnSchema, flat: FlatColumn) -> ArrowColumn:
    base, name, arrow = _base(column.type), sql.Identifier(column.name), flat.field.type
    if base.kind == "base":
        if base.oid in _NATIVE:
            return ArrowColumn(column.name, (name,), partial(_as_it_is, arrow))
        if base.oid in (_DATE, _TIMESTAMP, _TIMESTAMPTZ):
            return ArrowColumn(column.name, (name,), partial(_moments, arrow))
    element = base.inner
    if base.kind == "array" and element is not None and element.oid in _ELEMENTS:
        # ADBC knows lists alone: of other shapes it makes a list of all elements, or an error.
        other_shape = sql.SQL(
            "pg_catalog.array_ndims({0}) > 1 OR pg_catalog.array_lower({0}, 1) <> 1"
        ).format(name)
        expressions = (
            sql.SQL("CASE WHEN {} THEN NULL ELSE {} END").format(other_shape, name),
            sql.SQL("CASE WHEN {} THEN {}::pg_catalog.text END").format(other_shape, name),
        )
        return ArrowColumn(column.name, expressions, partial(_lists, arrow))
    return ArrowColumn(column.name, (as_text(column),), partial(_decoded, flat, column))


def _base(kind: PgType) -> PgType:
    while kind.kind == "domain" and kind.inner is not None:
        kind = kind.inner
    return kind


def _storage(array: pa.Array) -> pa.Array:
    """ADBC marks json with a type of its own."""
    return array.storage if isinstance(array, pa.ExtensionArray) else array


def _as_it_is(arrow: pa.DataType, arrays: Sequence[pa.Array]) -> Decoded:
    (values,) = arrays
    return Decoded(values if values.type == arrow else values.cast(arrow))


def _lists(arrow: pa.DataType, arrays: Sequence[pa.Array]) -> Decoded:
    values, texts = arrays
    values = values if values.type == arrow else values.cast(arrow)
    if texts.null_count == len(texts):
        return Decoded(values)
    return Decoded(values, texts.is_valid().to_numpy(zero_copy_only=False), texts)


def _decoded(flat: FlatColumn, column: ColumnSchema, arrays: Sequence[pa.Array]) -> Decoded:
    (text,) = arrays
    try:
        typed = flat.decode(text)
    except DecodeError as error:
        raise DecodeError(f"column {column.name}: {error.message}", remedy=error.remedy) from None
    if typed.unrepresentable is None:
        return Decoded(typed.values)
    return Decoded(typed.values, typed.unrepresentable.to_numpy(zero_copy_only=False), text)


# Postgres counts from 2000, Arrow from 1970: what ADBC adds carries both infinities, which are the
# ends of the integer, and timestamps that Arrow cannot hold around to the lowest values.
_EPOCH_DAYS, _DAY_US = 10957, 86_400_000_000
_ERA_DAYS, _ERA_YEARS, _ERAS = 146097, 400, 730


def _moments(arrow: pa.DataType, arrays: Sequence[pa.Array]) -> Decoded:
    (values,) = arrays
    values = values if values.type == arrow else values.cast(arrow)
    if not len(values):
        return Decoded(values)
    if pa.types.is_date32(arrow):
        numbers = values.view(pa.int32()).fill_null(0).to_numpy().astype(np.int64)
        minus_infinity = -(2**31) + _EPOCH_DAYS
    else:
        numbers = values.view(pa.int64()).fill_null(0).to_numpy()
        minus_infinity = -(2**63) + _EPOCH_DAYS * _DAY_US
    if numbers.min() > minus_infinity:
        return Decoded(values)
    holes: Mask = numbers <= minus_infinity
    texts = np.full(len(values), None, object)
    texts[holes] = "-infinity"
    texts[holes & (numbers == minus_infinity - 1)] = "infinity"
    beyond = np.flatnonzero(holes & (numbers < minus_infinity - 1))
    if len(beyond):
        texts[beyond] = _late_texts(numbers[beyond], zoned=getattr(arrow, "tz", None) is not None)
    nulls = pa.scalar(None, arrow)
    values = pc.if_else(pa.array(holes), nulls, values)
    return Decoded(values, holes, pa.array(texts, pa.string()))


def _late_texts(wrapped: npt.NDArray[np.int64], *, zoned: bool) -> list[str]:
    """Timestamps in the years 294247 to 294276, as Postgres writes them."""
    texts = []
    for number in wrapped.tolist():
        # Back to what Postgres sent, then to a year that NumPy writes, by whole cycles of the
        # calendar.
        days, micros = divmod(number + 2**64 - _EPOCH_DAYS * _DAY_US, _DAY_US)
        day = np.datetime64("2000-01-01") + np.timedelta64(days - _ERAS * _ERA_DAYS, "D")
        year, rest = str(day).split("-", 1)
        seconds, fraction = divmod(micros, 1_000_000)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        clock += f".{fraction:06}".rstrip("0") if fraction else ""
        texts.append(f"{int(year) + _ERAS * _ERA_YEARS}-{rest} {clock}{'+00' if zoned else ''}")
    return texts
