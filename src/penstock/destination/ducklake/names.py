"""Names and types of the lake's tables, as DuckDB writes them."""

from __future__ import annotations

from penstock.decode.typed import arrow_type
from penstock.destination.families.change_tables.latest import MaxByLatest, latest_schema
from penstock.destination.families.staged_merge.typed_columns import NO_COLUMNS, EngineTypes
from penstock.destination.families.target import Target
from penstock.model.plain_type import plain_pg_type

TYPES = EngineTypes(has_time=True, has_uuid=True, has_unsigned=True, is_endless=True)

_SQL = {
    "bool": "BOOLEAN",
    "bytea": "BLOB",
    "int2": "SMALLINT",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "oid": "UINTEGER",
    "xid": "UINTEGER",
    "cid": "UINTEGER",
    "xid8": "UBIGINT",
    "float4": "REAL",
    "float8": "DOUBLE",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ",
    "uuid": "UUID",
    "json": "JSON",
    "jsonb": "JSON",
}
# Elements of a list come as they are: Arrow has no lists of these.
_TEXT_IN_LISTS = ("uuid", "json", "jsonb")


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def table_name(target: Target) -> str:
    return f"{quoted(target.schema)}.{quoted(target.name)}"


def column_names(target: Target) -> list[str]:
    """Quoted, in the order of the target; never none."""
    return [quoted(name) for name in target.columns] or [NO_COLUMNS]


def sql_type(plain: str) -> str:
    """DuckDB's type of a column whose type comes down to ``plain`` (plain_type.py)."""
    scalar = plain.removesuffix("[]")
    if plain != scalar:
        return f"{'VARCHAR' if scalar in _TEXT_IN_LISTS else sql_type(scalar)}[]"
    if scalar.startswith("numeric"):
        decimal = arrow_type(*plain_pg_type(scalar))
        if TYPES.arrow(scalar) == decimal:
            return f"DECIMAL({decimal.precision},{decimal.scale})"
    return _SQL.get(scalar, "VARCHAR")


def column_types(target: Target) -> list[str]:
    return [sql_type(plain) for plain in target.types] or ["BOOLEAN"]


def view_name(target: Target) -> str:
    """The view of the rows that a change table leaves."""
    return f"{quoted(latest_schema(target))}.{quoted(target.name)}"


class DuckLakeLatest(MaxByLatest):
    """A value that is never null is a struct."""

    wide = "HUGEINT"

    def quoted(self, name: str) -> str:
        return quoted(name)

    def old_value(self, column: str, plain: str) -> str:
        pointer = "/" + column.replace("~", "~0").replace("/", "~1")
        text = f"json_extract_string(_old, {literal(pointer)})"
        if plain == "bytea":
            return f"unhex(substr({text}, 3))"
        return f"CAST({text} AS {sql_type(plain)})"

    def is_unset(self, column: str) -> str:
        return f"list_contains(coalesce(_unset, []), {literal(column)})"

    def boxed(self, value: str) -> str:
        return f"struct_pack(v := {value})"

    def unboxed(self, value: str, plain: str) -> str:
        return f"struct_extract({value}, 'v')"
