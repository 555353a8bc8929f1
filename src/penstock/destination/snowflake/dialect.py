"""Snowflake's SQL. Pure.

Names are kept in capitals, as Snowflake takes names that nobody quotes. Statements that change
tables commit, so nothing is made inside of a transaction: staged rows have tables that stay.
"""

# ruff: noqa: S608 (names are quoted, values are quoted literals)

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.destination.families.target import Target
from penstock.destination.families.warehouse.checked_texts import (
    CheckedTexts,
    TypeLimits,
    has_room_for,
)
from penstock.destination.families.warehouse.dialect import Dialect, Staged, WarehouseFile
from penstock.destination.families.warehouse.loaded_files import own_null
from penstock.destination.families.warehouse.staged_rows import ROW, WORD

_MEGABYTE = 2**20
TYPES = CheckedTexts(
    has_time=True,
    has_uuid=False,
    has_unsigned=False,
    is_endless=False,
    limits=TypeLimits(text=16 * _MEGABYTE, binary=8 * _MEGABYTE, document=16 * _MEGABYTE, scale=37),
    infinity="inf",
)
_SCHEMA = "PENSTOCK"
_SQL: Mapping[str, str] = {
    "op": "VARCHAR",
    "bool": "BOOLEAN",
    "bytea": "BINARY",
    "int2": "NUMBER(5,0)",
    "int4": "NUMBER(10,0)",
    "int8": "NUMBER(19,0)",
    "oid": "NUMBER(10,0)",
    "xid": "NUMBER(10,0)",
    "cid": "NUMBER(10,0)",
    "xid8": "NUMBER(20,0)",
    "float4": "FLOAT",
    "float8": "FLOAT",
    "date": "DATE",
    "time": "TIME(6)",
    "timestamp": "TIMESTAMP_NTZ(6)",
    "timestamptz": "TIMESTAMP_TZ(6)",
    "uuid": "VARCHAR",
    "json": "VARIANT",
    "text": "VARCHAR",
}
_SPELLED = {"VARCHAR": "TEXT", "FLOAT": "FLOAT"}

_FORMAT = (
    "TYPE = CSV COMPRESSION = GZIP FIELD_OPTIONALLY_ENCLOSED_BY = '\"' EMPTY_FIELD_AS_NULL = FALSE"
    " ESCAPE = NONE ESCAPE_UNENCLOSED_FIELD = NONE BINARY_FORMAT = HEX"
    " TRIM_SPACE = FALSE ENCODING = 'UTF8'"
)


class SnowflakeDialect(Dialect):
    """``place`` is the pipeline's folder in the external stage: @stage/pipeline."""

    name = "snowflake"
    types = TYPES
    sql_types = _SQL
    decimal = "NUMBER"
    has_transactional_ddl = False
    has_merge = True

    def __init__(self, place: str, pipeline: str) -> None:
        self._place = place
        self._pipeline = pipeline

    # -- names and values ------------------------------------------------------------------------

    def named(self, name: str) -> str:
        return "".join(char.upper() if char.isascii() else char for char in name)

    def quoted(self, name: str) -> str:
        return '"' + self.named(name).replace('"', '""') + '"'

    def literal(self, text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"

    # -- types -----------------------------------------------------------------------------------

    def value(self, held: str, text: str) -> str:
        return f"PARSE_JSON({text})" if held == "json" else text

    def parsed(self, held: str, text: str) -> str:
        if held == "json":
            return f"PARSE_JSON({text})"
        if held == "bytea":
            return f"TO_BINARY({text}, 'HEX')"
        return f"CAST({text} AS {self.sql_type(held)})"

    def same_or_null(self, held: str, one: str, other: str) -> str:
        if held == "json":
            one, other = self.document_text(one), self.document_text(other)
        return f"EQUAL_NULL({one}, {other})"

    def has_bit(self, words: str, bit: int) -> str:
        return f"BITAND({words}, {bit}) <> 0"

    def widened(self, table: str, column: str, before: str, after: str) -> str | None:
        """More digits before the point; nothing else changes in place."""
        if not has_room_for(before, after):
            return None
        kind = self.sql_type(after)
        return f"ALTER TABLE {table} ALTER COLUMN {self.quoted(column)} SET DATA TYPE {kind}"

    # -- documents -------------------------------------------------------------------------------

    def document_text(self, document: str) -> str:
        return f"TO_JSON({document})"

    def member(self, document: str, name: str) -> str:
        return f"CAST(GET({document}, {self.literal(name)}) AS VARCHAR)"

    # -- statements ------------------------------------------------------------------------------

    def create_table(self, target: Target, name: str) -> str:
        return f"CREATE TABLE IF NOT EXISTS {name} ({self.column_list(target)})"

    def replace_table(self, target: Target, query: str, mark: str) -> str:
        return (
            f"CREATE OR REPLACE TABLE {self.table(target)} ({self.column_list(target)})"
            f" COMMENT = {self.literal(mark)} AS {query}"
        )

    def mark_query(self, target: Target) -> str:
        return (
            "SELECT COMMENT FROM INFORMATION_SCHEMA.TABLES WHERE TABLE_SCHEMA ="
            f" {self.literal(self.named(target.schema))} AND TABLE_NAME ="
            f" {self.literal(self.named(target.name))}"
        )

    def rename_table(self, schema: str, before: str, after: str) -> str:
        place = self.quoted(schema)
        return f"ALTER TABLE {place}.{self.quoted(before)} RENAME TO {place}.{self.quoted(after)}"

    def tables_query(self) -> str:
        kind = (
            "CASE WHEN DATA_TYPE = 'NUMBER' THEN 'NUMBER(' || NUMERIC_PRECISION || ',' ||"
            " NUMERIC_SCALE || ')' WHEN DATA_TYPE LIKE 'TIME%' THEN DATA_TYPE || '(' ||"
            " DATETIME_PRECISION || ')' ELSE DATA_TYPE END"
        )
        return (
            f"SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, {kind} FROM INFORMATION_SCHEMA.COLUMNS"
            " WHERE TABLE_SCHEMA <> 'INFORMATION_SCHEMA'"
            " ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION"
        )

    def spelled(self, held: str) -> str:
        kind = self.sql_type(held)
        return _SPELLED.get(kind, kind)

    def fence(self, ledger: str) -> Sequence[str]:
        """Nothing: the UPDATE of the driver's number keeps others waiting until the end."""
        return ()

    def in_delete(self, target: Target) -> str:
        return self.table(target)

    # -- files -----------------------------------------------------------------------------------

    def _staging(self, target: Target) -> str:
        return f"{self.quoted(_SCHEMA)}.{self.quoted(f'{self._pipeline}${target.oid}')}"

    def staging_table(self, target: Target) -> tuple[str, ...]:
        """Room for every column that a file may have."""
        held = [self.types.held_as(plain) for plain in target.types]
        columns = [(f"c{index}", kind) for index, kind in enumerate(held)]
        columns += [(f"b{index}", held[index]) for index in target.key]
        words = range((len(held) + WORD - 1) // WORD)
        columns += [(f"m{word}", "int8") for word in words]
        columns += [("op", "op"), ("place", "int8"), (ROW, "bool")]
        listed = ", ".join(f"{name} {self._staged_type(kind)}" for name, kind in columns)
        return (f"CREATE OR REPLACE TRANSIENT TABLE {self._staging(target)} ({listed})",)

    def _staged_type(self, held: str) -> str:
        """A document is a text until it is read from there."""
        return "VARCHAR" if held == "json" else self.sql_type(held)

    def drop_staging(self, target: Target) -> tuple[str, ...]:
        return (f"DROP TABLE IF EXISTS {self._staging(target)}",)

    def staged(self, target: Target, file: WarehouseFile) -> Staged:
        table = self._staging(target)
        columns = ", ".join(name for name, _ in file.columns)
        null = self.literal(own_null(file.name))
        copied = (
            f"COPY INTO {table} ({columns}) FROM {self._place}/ FILES = ({self.literal(file.name)})"
            f" FILE_FORMAT = ({_FORMAT} NULL_IF = ({null})) ON_ERROR = ABORT_STATEMENT"
        )
        return Staged(table, (copied,), (f"DELETE FROM {table}",))
