"""What a column's type comes down to, for destinations that hold typed rows. No I/O."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache

from penstock.model.pg_types import builtin_type
from penstock.model.table_definition import ColumnDefinition, TypeDefinition, TypeName
from penstock.model.table_schema import PgType

TEXT = "text"
"""The type of whatever is held as its text."""

_NAMES = {
    "smallint": "int2",
    "integer": "int4",
    "bigint": "int8",
    "real": "float4",
    "double precision": "float8",
    "boolean": "bool",
    "timestamp without time zone": "timestamp",
    "timestamp with time zone": "timestamptz",
    "time without time zone": "time",
}
_TYPED = frozenset(
    {*_NAMES.values(), "bytea", "oid", "xid", "cid", "xid8", "date", "uuid", "json", "jsonb"}
)
_NUMERIC = re.compile(r"numeric\((\d+),(-?\d+)\)")
_COMMA_DELIMITED = frozenset({"citext", "hstore", "ltree"})


def plain_type(column: ColumnDefinition, types: Sequence[TypeDefinition]) -> str:
    """A built-in type that values differ by: ``int8``, ``numeric(12,2)``, ``date[]``; ``text`` for
    all that is nothing but its text. Domains count as what they are made of. ``types`` are those
    of the table.
    """
    known = {(kind.schema, kind.name): kind for kind in types}
    name, is_array = column.type, column.type.is_array
    while (kind := known.get((name.schema, name.name))) is not None and kind.kind == "domain":
        if kind.base is None or (kind.base.is_array and is_array):
            return TEXT
        name, is_array = kind.base, is_array or kind.base.is_array
    if not is_array:
        return _scalar(name)
    return f"{_scalar(name)}[]" if _is_comma_delimited(name, kind) else TEXT


def _scalar(name: TypeName) -> str:
    if name.is_user_defined:
        return TEXT
    # Only the precision of numeric makes another type of it.
    shown = re.sub(r"\(.*?\)", "", name.name + name.modifier)
    if shown == "numeric":
        numeric = f"numeric{name.modifier}"
        return numeric if _NUMERIC.fullmatch(numeric) else TEXT
    found = _NAMES.get(shown, shown)
    return found if found in _TYPED else TEXT


def _is_comma_delimited(name: TypeName, kind: TypeDefinition | None) -> bool:
    """Whether the elements of its arrays are told apart by commas; an extension may want others."""
    if not name.is_user_defined:
        return name.name != "box"
    return kind is not None or name.name in _COMMA_DELIMITED


@cache
def plain_pg_type(plain: str) -> tuple[PgType, int]:
    """The same as decoders take it, with its modifier."""
    scalar, typmod = plain.removesuffix("[]"), -1
    if (numeric := _NUMERIC.fullmatch(scalar)) is not None:
        precision, scale = int(numeric[1]), int(numeric[2])
        scalar, typmod = "numeric", ((precision << 16) | (scale & 0x7FF)) + 4
    wanted = f"_{scalar}" if plain.endswith("[]") else scalar
    return _by_name()[wanted], typmod


@cache
def _by_name() -> dict[str, PgType]:
    found = [builtin_type(oid) for oid in range(16, 7000)]
    return {kind.name: kind for kind in found if kind is not None}
