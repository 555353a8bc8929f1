"""The columns of a table as pg-bifrost writes them: names and types as SQL shows them, values as
the plugin test_decoding prints them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.decode.row_values import Mask
from penstock.destination.encode.json_values import BOOLEAN, TEXT, Part, escaped, join
from penstock.destination.encode.sql_names import qualified_name, quoted_name
from penstock.model.pg_types import FIRST_USER_OID
from penstock.model.table_definition import TableDefinition, TypeName
from penstock.model.table_schema import PgType, TableSchema

UNCHANGED = "unchanged-toast-datum"
"""What stands, without quotes, where Postgres did not send a value."""

# int8, int2, int4, oid, float4, float8, numeric: of all but these the values are quoted.
_NUMBERS = frozenset({20, 21, 23, 26, 700, 701, 1700})

# As format_type() calls them; all others are called by their names.
_SHOWN = {
    "bool": "boolean",
    "int2": "smallint",
    "int4": "integer",
    "int8": "bigint",
    "float4": "real",
    "float8": "double precision",
    "bpchar": "character",
    "varchar": "character varying",
    "varbit": "bit varying",
    "char": '"char"',
    "time": "time without time zone",
    "timetz": "time with time zone",
    "timestamp": "timestamp without time zone",
    "timestamptz": "timestamp with time zone",
}


@dataclass(frozen=True)
class BifrostColumn:
    """``place`` is the column's in rows of the stream; ``name`` and ``type`` are JSON strings."""

    place: int
    name: str
    type: str
    is_boolean: bool
    is_quoted: bool

    def value(self, text: pa.Array, unset: Mask | None = None) -> list[Part]:
        """``{"q":…,"t":…,"v":…}`` of each text, in pieces."""
        text = text.cast(TEXT)
        opening = f'"t":{self.type},"v":"'
        if not self.is_quoted:
            values = self._unquoted(text) if self.is_boolean else text
            if unset is not None:
                values = pc.if_else(pa.array(unset), pa.scalar(UNCHANGED, TEXT), values)
            return [f'{{"q":"false",{opening}', pc.fill_null(values, "null"), '"}']
        if not text.null_count and unset is None:
            return [f'{{"q":"true",{opening}', escaped(text), '"}']
        values = pc.fill_null(join(f'true",{opening}', escaped(text)), f'false",{opening}null')
        if unset is not None:
            unchanged = pa.scalar(f'false",{opening}{UNCHANGED}', TEXT)
            values = pc.if_else(pa.array(unset), unchanged, values)
        return ['{"q":"', values, '"}']

    @staticmethod
    def _unquoted(text: pa.Array) -> pa.Array:
        yes, no = pa.scalar("true", TEXT), pa.scalar("false", TEXT)
        return pc.if_else(pc.equal(text, pa.scalar("t", TEXT)), yes, no)


def bifrost_columns(
    table: TableSchema, definition: TableDefinition | None
) -> tuple[BifrostColumn, ...]:
    """In the order of their names, as Go writes maps."""
    defined = {} if definition is None else {c.name: c.type for c in definition.columns}
    columns = [
        BifrostColumn(
            place,
            _json(quoted_name(column.name)),
            _json(_type(column.type, defined.get(column.name))),
            is_boolean=column.type.oid == BOOLEAN,
            is_quoted=column.type.oid != BOOLEAN and column.type.oid not in _NUMBERS,
        )
        for place, column in enumerate(table.columns)
    ]
    return tuple(sorted(columns, key=lambda c: quoted_name(table.columns[c.place].name).encode()))


def _type(pg_type: PgType, defined: TypeName | None) -> str:
    """Only the catalogue knows the schema of a type; without its word, public is assumed."""
    if defined is not None and defined.is_user_defined:
        is_plain = defined.schema == "public"
        name = quoted_name(defined.name)
        name = name if is_plain else qualified_name(defined.schema, defined.name)
        return name + ("[]" if defined.is_array else "")
    if pg_type.kind == "array" and pg_type.inner is not None:
        return _type(pg_type.inner, None) + "[]"
    if pg_type.oid >= FIRST_USER_OID:
        return quoted_name(pg_type.name)
    return _SHOWN.get(pg_type.name, pg_type.name)


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
