"""BigQuery's SQL. Pure.

Every statement is one line: where a script fails, the line tells which of them it was.
"""

# ruff: noqa: S608 (names are quoted, values are quoted literals)

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from penstock.destination.families.target import Target
from penstock.destination.families.warehouse.checked_texts import (
    CheckedTexts,
    TypeLimits,
    has_room_for,
    scale_of,
)
from penstock.destination.families.warehouse.dialect import KEPT, Dialect, Staged, WarehouseFile

_INTEGERS = ("int2", "int4", "oid", "xid", "cid")
_MOST_BYTES = 100_000_000
# Digits before the point, and behind it, that NUMERIC has; BIGNUMERIC has 38 of each.
_NUMERIC = (29, 9)
_SQL: Mapping[str, str] = {
    "op": "STRING",
    "bool": "BOOL",
    "bytea": "BYTES",
    "int8": "INT64",
    "xid8": "NUMERIC(20)",
    "float8": "FLOAT64",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "DATETIME",
    "timestamptz": "TIMESTAMP",
    "uuid": "STRING",
    "json": "JSON",
    "text": "STRING",
}
_CLUSTERED = ("bool", "date", "int8", "text", "timestamp", "timestamptz", "uuid", "xid8")
_MOST_CLUSTERED = 4
_ESCAPED = str.maketrans(
    {"\\": "\\\\", "'": "\\'", "`": "\\`", "\n": "\\n", "\r": "\\r", "\u2028": "\\u2028"}
)
_BOUNDED = ("int8", "text", "uuid", "date")
_LONGEST_BOUND = 500

_DATASET = re.compile(r"[A-Za-z0-9_]{1,1024}")
_TABLE_CATEGORIES = ("L", "M", "N", "Pc", "Pd", "Zs")
_NO_COLUMN = re.compile(r"[!\"$()*,./;?@\[\\\]^`{}~\x00-\x1f]")
_OWN_PREFIXES = ("_table_", "_file_", "_partition", "_row_timestamp", "__root__", "_colidentifier")


@dataclass(frozen=True)
class BigQueryTypes(CheckedTexts):
    """Integers have 64 bits, and so have floating-point numbers."""

    def held_as(self, plain: str) -> str:
        held = super().held_as(plain)
        if held in _INTEGERS:
            return "int8"
        return "float8" if held == "float4" else held


TYPES = BigQueryTypes(
    has_time=True,
    has_uuid=False,
    has_unsigned=False,
    is_endless=False,
    # Binary data takes two characters a byte in a file.
    limits=TypeLimits(
        text=_MOST_BYTES, binary=_MOST_BYTES // 2, document=_MOST_BYTES, has_doubles=True
    ),
)


class BigQueryDialect(Dialect):
    """``location`` is where the datasets are."""

    name = "bigquery"
    types = TYPES
    sql_types = _SQL
    decimal = "NUMERIC"
    has_transactional_ddl = False
    has_merge = True
    reads_itself = False
    replaces_all = False
    names_recursion = False

    def __init__(self, location: str) -> None:
        self._location = location
        self._catalogue = f"`region-{location.lower()}`.INFORMATION_SCHEMA"

    # -- names and values ------------------------------------------------------------------------

    def quoted(self, name: str) -> str:
        return f"`{name.translate(_ESCAPED)}`"

    def literal(self, text: str) -> str:
        return f"'{text.translate(_ESCAPED)}'"

    def lacks(self, target: Target) -> str | None:
        if not _DATASET.fullmatch(target.schema):
            return f"{target.schema!r} is no name of a dataset: letters, digits and _ alone"
        if len(target.name.encode()) > 1024 or not all(
            unicodedata.category(char).startswith(_TABLE_CATEGORIES) for char in target.name
        ):
            return f"{target.name!r} is no name of a table in BigQuery"
        for name in target.columns:
            if len(name) > 300 or _NO_COLUMN.search(name) or name.lower().startswith(_OWN_PREFIXES):
                return f"{name!r} is no name of a column in BigQuery"
        if len({name.lower() for name in target.columns}) < len(target.columns):
            return "its columns have names that differ in case alone, which BigQuery does not know"
        return None

    # -- types -----------------------------------------------------------------------------------

    def sql_type(self, held: str) -> str:
        if not held.startswith("numeric"):
            return self.sql_types[held]
        precision, scale = scale_of(held)
        whole, behind = _NUMERIC
        kind = "NUMERIC" if precision - scale <= whole and scale <= behind else "BIGNUMERIC"
        return f"{kind}({precision},{scale})" if scale else f"{kind}({precision})"

    def value(self, held: str, text: str) -> str:
        if held in ("text", "uuid", "op"):
            return text
        if held == "bool":
            return f"({text} = 't')"
        if held == "bytea":
            return f"FROM_HEX({text})"
        if held == "json":
            return f"PARSE_JSON({text})"
        return f"CAST({text} AS {self.sql_type(held)})"

    def parsed(self, held: str, text: str) -> str:
        return self.value(held, text)

    def same(self, held: str, one: str, other: str) -> str:
        """To Postgres one NaN is like the other."""
        (one,), (other,) = self.identity(held, one), self.identity(held, other)
        return f"{one} = {other}"

    def identity(self, held: str, value: str) -> Sequence[str]:
        return (f"CAST({value} AS STRING)",) if held == "float8" else (value,)

    def same_or_null(self, held: str, one: str, other: str) -> str:
        """An equality of two texts, by which BigQuery can join: no document is equal to another."""
        texts = [f"IF({each} IS NULL, '', {self.document_text(each)})" for each in (one, other)]
        return " = ".join(texts)

    def cast(self, before: str, after: str, column: str) -> str | None:
        if before.startswith("numeric") and after == "text":
            return f"FORMAT('%.{scale_of(before)[1]}f', {column})"  # 1.50 stays 1.50
        return super().cast(before, after, column)

    def widened(self, table: str, column: str, before: str, after: str) -> str | None:
        if not has_room_for(before, after):
            return None
        kind = self.sql_type(after)
        return f"ALTER TABLE {table} ALTER COLUMN {self.quoted(column)} SET DATA TYPE {kind}"

    # -- documents -------------------------------------------------------------------------------

    def document_text(self, document: str) -> str:
        return f"TO_JSON_STRING({document})"

    def member(self, document: str, name: str) -> str:
        return f"JSON_VALUE({document}[{self.literal(name)}])"

    def holds(self, text: str, part: str) -> str:
        return f"STRPOS({text}, {part}) > 0"

    # -- statements ------------------------------------------------------------------------------

    def create_schema(self, schema: str) -> str:
        made = f"CREATE SCHEMA IF NOT EXISTS {self.quoted(schema)}"
        return f"{made} OPTIONS (location = {self.literal(self._location)})"

    def bound_columns(self, target: Target) -> tuple[str, ...]:
        """By which it is clustered."""
        held = {index: self.types.held_as(target.types[index]) for index in target.key}
        found = [
            target.columns[index]
            for index, kind in held.items()
            if kind in _CLUSTERED or kind.startswith("numeric")
        ]
        return tuple(found[:_MOST_CLUSTERED])

    def _clustered(self, target: Target) -> str:
        columns = ", ".join(map(self.quoted, self.bound_columns(target)))
        return f" CLUSTER BY {columns}" if columns else ""

    def create_table(self, target: Target, name: str) -> str:
        columns = self.column_list(target)
        return f"CREATE TABLE IF NOT EXISTS {name} ({columns}){self._clustered(target)}"

    def replace_table(self, target: Target, query: str, mark: str) -> str:
        return (
            f"CREATE OR REPLACE TABLE {self.table(target)} ({self.column_list(target)})"
            f"{self._clustered(target)} OPTIONS (description = {self.literal(mark)}) AS {query}"
        )

    def mark_query(self, target: Target) -> str:
        """The catalogue shows the text as a literal."""
        return (
            f"SELECT TRIM(option_value, '\"') FROM {self._catalogue}.TABLE_OPTIONS"
            f" WHERE table_schema = {self.literal(target.schema)}"
            f" AND table_name = {self.literal(target.name)} AND option_name = 'description'"
        )

    def rename_table(self, schema: str, before: str, after: str) -> str:
        table = f"{self.quoted(schema)}.{self.quoted(before)}"
        return f"ALTER TABLE {table} RENAME TO {self.quoted(after)}"

    def tables_query(self) -> str:
        return (
            "SELECT table_schema, table_name, column_name, REPLACE(data_type, ' ', '')"
            f" FROM {self._catalogue}.COLUMNS ORDER BY table_schema, table_name, ordinal_position"
        )

    def table_query(self, schema: str, name: str) -> str:
        return (
            f"SELECT 1 FROM {self._catalogue}.TABLES"
            f" WHERE table_schema = {self.literal(schema)} AND table_name = {self.literal(name)}"
        )

    def spelled(self, held: str) -> str:
        return self.sql_type(held)

    def fence(self, ledger: str) -> Sequence[str]:
        """Nothing: two transactions that change one table do not both commit."""
        return ()

    def delete_all(self, table: str) -> str:
        return f"TRUNCATE TABLE {table}"

    def bounds(self, target: Target, rows: pa.Table) -> str:
        """Of the first column that the table lies by: BigQuery reads no block beyond them."""
        name = next(iter(self.bound_columns(target)), None)
        if name is None:
            return ""
        index = target.columns.index(name)
        held = self.types.held_as(target.types[index])
        if held not in _BOUNDED:
            return ""
        keys = rows[f"b{index}"]
        ends = pc.min_max(keys.cast(pa.int64()) if held == "int8" else keys).as_py()
        if ends["min"] is None or any(len(str(end)) > _LONGEST_BOUND for end in ends.values()):
            return ""
        first, last = (self._literal(held, ends[end]) for end in ("min", "max"))
        return f" AND {KEPT}.{self.quoted(name)} BETWEEN {first} AND {last}"

    def _literal(self, held: str, value: object) -> str:
        if held == "int8":
            return str(value)
        return ("DATE " if held == "date" else "") + self.literal(str(value))

    def delete(self, target: Target, relation: str, where: str) -> str:
        picked = f"SELECT 1 FROM {relation} WHERE {where}"
        return f"DELETE FROM {self.table(target)} {KEPT} WHERE EXISTS ({picked})"

    def in_delete(self, target: Target) -> str:
        return KEPT

    # -- files -----------------------------------------------------------------------------------

    def staged(self, target: Target, file: WarehouseFile) -> Staged:
        """The request names the file that the relation is."""
        return Staged(relation_of(file.name), (), ())


def relation_of(file: str) -> str:
    """What a file of the stage is called in statements."""
    return f"penstock_{file.partition('.')[0]}"
