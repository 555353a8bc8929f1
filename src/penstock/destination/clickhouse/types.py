"""What columns are in ClickHouse, and how values get there and back as Postgres's texts."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.typed import arrow_type
from penstock.destination.clickhouse.names import literal
from penstock.destination.encode.json_arrays import json_arrays, json_texts
from penstock.destination.encode.json_values import TEXT as JSON_TEXT
from penstock.destination.encode.json_values import join, json_values
from penstock.destination.families.staged_merge.typed_columns import EngineTypes, Mask
from penstock.destination.families.target import Target
from penstock.model.plain_type import TEXT, plain_pg_type
from penstock.model.table_schema import PgType

_SQL = {
    "bool": "Bool",
    "int2": "Int16",
    "int4": "Int32",
    "int8": "Int64",
    "oid": "UInt32",
    "xid": "UInt32",
    "cid": "UInt32",
    "xid8": "UInt64",
    "float4": "Float32",
    "float8": "Float64",
    "date": "Date32",
    "timestamp": "DateTime64(6, 'UTC')",
    "timestamptz": "DateTime64(6, 'UTC')",
    "uuid": "UUID",
}
_FLOATS = ("float4", "float8")
# 1900-01-01 to 2299-12-31: what Date32 and DateTime64(6) hold.
_DAYS = (-25_567, 120_529)
# An array whose bounds are told; JSON never looks like that.
_BOUNDS = r"^\[-?\d+:-?\d+\]"


class ClickHouseTypes(EngineTypes):
    """Arrays are JSON: ClickHouse's own cannot be null."""

    def arrow(self, plain: str) -> pa.DataType:
        return pa.string() if plain.endswith("[]") else super().arrow(plain)

    def fit(self, text: pa.Array, plain: str, *, nearest: bool) -> tuple[pa.Array, Mask | None]:
        if not plain.endswith("[]"):
            return super().fit(text, plain, nearest=nearest)
        return _json_of(text, plain_pg_type(plain)[0])

    def own_values(self, values: pa.Array, plain: str) -> pa.Array:
        if plain.endswith("[]"):
            return json_texts(values).cast(pa.string())
        return super().own_values(values, plain)


TYPES = ClickHouseTypes(
    has_time=False, has_uuid=False, has_unsigned=True, is_endless=False, days=_DAYS, most_digits=76
)


def held(target: Target) -> Target:
    """The same with the types by which its columns are held: floats of a key are texts, since 0 and
    -0 are one number and two rows.
    """
    types = tuple(
        TEXT if index in target.key and plain in _FLOATS else plain
        for index, plain in enumerate(target.types)
    )
    return replace(target, types=types)


def sql_type(plain: str) -> str:
    """ClickHouse's type of a column whose type comes down to ``plain`` (plain_type.py)."""
    if plain.startswith("numeric") and not plain.endswith("[]"):
        decimal = TYPES.arrow(plain)
        if pa.types.is_decimal(decimal):
            return f"Decimal({decimal.precision}, {decimal.scale})"
    return _SQL.get(plain, "String")


def column_type(target: Target, index: int) -> str:
    """The type of a column of a target that is ``held``."""
    found = sql_type(target.types[index])
    return found if index in target.key else f"Nullable({found})"


def text_of(column: str, plain: str) -> str:
    """An expression for the text of a column's values that Postgres would write, floats apart. Of
    arrays it is their JSON.
    """
    kind = sql_type(plain)
    if plain == "bytea":
        return f"concat('\\\\x', lower(hex({column})))"
    if plain == "bool":
        return f"if(isNull({column}), NULL, if({column}, 't', 'f'))"
    if kind.startswith("Decimal"):
        return f"toDecimalString({column}, {arrow_type(*plain_pg_type(plain)).scale})"
    if plain in ("timestamp", "timestamptz"):
        trimmed = f"replaceRegexpOne(toString({column}), '\\\\.?0+$', '')"
        return f"concat({trimmed}, '+00')" if plain == "timestamptz" else trimmed
    return column if kind == "String" else f"toString({column})"


def literal_of(text: str, plain: str) -> str:
    """A value of ClickHouse that was this text in Postgres, as an expression; of arrays, and of
    what a key holds, likewise. Floats may be infinite.
    """
    kind = sql_type(plain)
    if plain.endswith("[]"):
        text = _json_of(pa.array([text]), plain_pg_type(plain)[0])[0][0].as_py() or ""
    elif plain == "bytea":
        return f"unhex({literal(text[2:])})"
    elif plain == "bool":
        text = "true" if text == "t" else "false"
    elif plain == "timestamptz":
        text = text.removesuffix("+00")
    return f"CAST({literal(text)} AS {kind})"


def key_literals(text: pa.Array, plain: str) -> pa.Array:
    """Values of a key, as literals that can be compared with it, all at once."""
    text = text.cast(JSON_TEXT)
    if plain == "timestamptz":
        text = pc.replace_substring_regex(text, r"\+00$", "")
    elif plain == "bool":
        return pc.if_else(pc.equal(text, "t"), "true", "false").cast(JSON_TEXT)
    elif plain == "bytea":
        return join("unhex('", pc.utf8_slice_codeunits(text, 2), "')")
    escaped = pc.replace_substring(pc.replace_substring(text, "\\", "\\\\"), "'", "\\'")
    return join("'", escaped, "'")


def _json_of(text: pa.Array, array: PgType) -> tuple[pa.Array, Mask | None]:
    """Arrays as JSON. Those that are JSON already were read from the table, and stay. Bounds that
    do not begin with one have no place in it.
    """
    is_array = pc.starts_with(text, "{")
    is_bound = pc.match_substring_regex(text, _BOUNDS)
    made = json_arrays(
        pc.if_else(is_array, text, pa.scalar(None, text.type)).cast(pa.string()),
        partial(_elements, element=array.inner or array),
    )
    kept = pc.if_else(pc.or_(is_array, is_bound), made, text.cast(JSON_TEXT))
    unfit: Mask = pc.fill_null(is_bound, False).to_numpy(zero_copy_only=False)
    return kept.cast(pa.string()), unfit if unfit.any() else None


def _elements(text: pa.Array, element: PgType) -> pa.Array:
    values = json_values(text.cast(JSON_TEXT), element)
    if not text.null_count:
        return values
    return pc.if_else(pc.is_valid(text), values, pa.scalar("null", JSON_TEXT))
