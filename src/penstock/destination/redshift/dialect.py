"""Redshift's SQL. Pure.

What it does not have, and Postgres does: names with case, backslashes that mean themselves, blanks
at the end of a text that count, TRUNCATE inside of a transaction, columns that are retyped.
"""

# ruff: noqa: S608 (names are quoted, values are quoted literals)

from __future__ import annotations

from collections.abc import Mapping, Sequence

from penstock.destination.families.target import Target
from penstock.destination.families.warehouse.checked_texts import CheckedTexts, TypeLimits
from penstock.destination.families.warehouse.dialect import Dialect, Staged, WarehouseFile
from penstock.destination.families.warehouse.loaded_files import own_null
from penstock.destination.redshift.options import RedshiftOptions, RedshiftTable

TYPES = CheckedTexts(
    has_time=True,
    has_uuid=False,
    has_unsigned=False,
    is_endless=False,
    # A row of a file has 4 MB at most, and binary data takes two characters a byte.
    limits=TypeLimits(text=65_535, binary=1_024_000, document=4_000_000, string=65_535, scale=37),
)
_ROWS = "penstock_rows"
_SQL: Mapping[str, str] = {
    "op": "CHAR(1)",
    "bool": "BOOLEAN",
    "bytea": "VARBYTE(1024000)",
    "int2": "SMALLINT",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "oid": "BIGINT",
    "xid": "BIGINT",
    "cid": "BIGINT",
    "xid8": "DECIMAL(20,0)",
    "float4": "REAL",
    "float8": "DOUBLE PRECISION",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMPTZ",
    "uuid": "CHAR(36)",
    "json": "SUPER",
    "text": "VARCHAR(65535)",
}
# As the catalogue spells them.
_SPELLED = {
    "BOOLEAN": "boolean",
    "VARBYTE(1024000)": "binary varying",
    "SMALLINT": "smallint",
    "INTEGER": "integer",
    "BIGINT": "bigint",
    "REAL": "real",
    "DOUBLE PRECISION": "double precision",
    "DATE": "date",
    "TIME": "time without time zone",
    "TIMESTAMP": "timestamp without time zone",
    "TIMESTAMPTZ": "timestamp with time zone",
    "CHAR(36)": "character(36)",
    "SUPER": "super",
    "VARCHAR(65535)": "character varying(65535)",
}


class RedshiftDialect(Dialect):
    """``stage`` is the pipeline's folder there."""

    name = "redshift"
    types = TYPES
    sql_types = _SQL
    decimal = "DECIMAL"
    has_transactional_ddl = True
    has_merge = False

    def __init__(self, options: RedshiftOptions, stage: str) -> None:
        self._options = options
        self._stage = stage

    # -- names and values ------------------------------------------------------------------------

    def named(self, name: str) -> str:
        """Redshift folds names, quoted or not: ASCII letters become small ones."""
        return "".join(char.lower() if char.isascii() else char for char in name)

    def quoted(self, name: str) -> str:
        return '"' + self.named(name).replace('"', '""') + '"'

    def literal(self, text: str) -> str:
        """A backslash is a character of its own here, whatever the server takes it for."""
        parts = ("'" + part.replace("'", "''") + "'" for part in text.split("\\"))
        return " || CHR(92) || ".join(parts)

    # -- types -----------------------------------------------------------------------------------

    def value(self, held: str, text: str) -> str:
        """COPY has made a value of it already."""
        return text

    def parsed(self, held: str, text: str) -> str:
        if held == "json":
            return f"JSON_PARSE({text})"
        if held == "bytea":
            return f"FROM_HEX({text})"
        return f"CAST({text} AS {self.sql_type(held)})"

    def same(self, held: str, one: str, other: str) -> str:
        """Blanks at the end of a text mean nothing to Redshift's =, and are another row's key to
        Postgres.
        """
        if held == "json":
            return f"JSON_SERIALIZE({one}) = JSON_SERIALIZE({other})"
        if held == "text":
            return f"{one} = {other} AND OCTET_LENGTH({one}) = OCTET_LENGTH({other})"
        return f"{one} = {other}"

    def same_or_null(self, held: str, one: str, other: str) -> str:
        return f"(({self.same(held, one, other)}) OR ({one} IS NULL AND {other} IS NULL))"

    def identity(self, held: str, value: str) -> Sequence[str]:
        return (value, f"OCTET_LENGTH({value})") if held == "text" else (value,)

    def as_text(self, held: str, value: str) -> str:
        """A value of any type as text; truth values know no cast to it."""
        if held == "json":
            return self.document_text(value)
        if held == "bytea":
            return f"TO_HEX({value})"
        if held == "bool":
            return f"CASE WHEN {value} THEN 'true' WHEN NOT {value} THEN 'false' END"
        return f"CAST({value} AS {self.sql_type('text')})"

    # -- documents -------------------------------------------------------------------------------

    def document_text(self, document: str) -> str:
        return f"JSON_SERIALIZE({document})"

    def member(self, document: str, name: str) -> str:
        """By its path, which has no case; a name that has goes by the document's text, which has
        an end.
        """
        if self.named(name) == name:
            return f"CAST({document}.{self.quoted(name)} AS {self.sql_type('text')})"
        return f"JSON_EXTRACT_PATH_TEXT({self.document_text(document)}, {self.literal(name)})"

    # -- statements ------------------------------------------------------------------------------

    def create_table(self, target: Target, name: str) -> str:
        layout = next(
            (each for each in self._options.tables if each.fits(target.schema, target.name)), None
        )
        laid = "" if layout is None else self._laid(layout, target)
        return f"CREATE TABLE {name} ({self.column_list(target)}){laid}"

    def _laid(self, layout: RedshiftTable, target: Target) -> str:
        parts = ""
        key = layout.distribution_key
        if layout.distribution != "key" or key in target.columns:
            parts += f" DISTSTYLE {layout.distribution.upper()}"
            if layout.distribution == "key":
                parts += f" DISTKEY ({self.quoted(key or '')})"
        if sorting := [self.quoted(name) for name in layout.sort_key if name in target.columns]:
            parts += f" SORTKEY ({', '.join(sorting)})"
        return parts

    def rename_table(self, schema: str, before: str, after: str) -> str:
        table = f"{self.quoted(schema)}.{self.quoted(before)}"
        return f"ALTER TABLE {table} RENAME TO {self.quoted(after)}"

    def tables_query(self) -> str:
        kind = (
            "CASE WHEN data_type LIKE 'character%' THEN data_type || '('"
            " || CAST(character_maximum_length AS VARCHAR) || ')'"
            " WHEN data_type = 'numeric' THEN 'numeric(' || CAST(numeric_precision AS VARCHAR)"
            " || ',' || CAST(numeric_scale AS VARCHAR) || ')' ELSE data_type END"
        )
        return (
            f"SELECT table_schema, table_name, column_name, {kind} FROM information_schema.columns"
            " WHERE table_schema NOT IN ('information_schema', 'pg_catalog')"
            " ORDER BY table_schema, table_name, ordinal_position"
        )

    def spelled(self, held: str) -> str:
        kind = self.sql_type(held)
        return _SPELLED.get(kind) or kind.lower().replace("decimal", "numeric")

    def fence(self, ledger: str) -> Sequence[str]:
        """Before anything is read: else the snapshot is one of before whoever was waited for."""
        return (f"LOCK {ledger}",)

    def in_delete(self, target: Target) -> str:
        return self.quoted(target.name)

    # -- files -----------------------------------------------------------------------------------

    def staged(self, target: Target, file: WarehouseFile) -> Staged:
        columns = ", ".join(f"{name} {self.sql_type(held)}" for name, held in file.columns)
        listed = [name for name, _ in file.columns]
        make = f"CREATE TEMP TABLE {_ROWS} ({columns})", self._copy(_ROWS, listed, file)
        return Staged(_ROWS, make, (f"DROP TABLE {_ROWS}",))

    def load_file(self, target: Target, file: WarehouseFile) -> str | None:
        return self._copy(self.table(target), self.columns(target), file)

    def _copy(self, table: str, columns: Sequence[str], file: WarehouseFile) -> str:
        """Of a manifest: a file that is missing there fails, and no other begins with its name."""
        region = f" REGION {self.literal(self._options.region)}" if self._options.region else ""
        role = self._options.iam_role
        return (
            f"COPY {table} ({', '.join(columns)}) FROM"
            f" {self.literal(f'{self._stage}/{manifest_of(file.name)}')}"
            f" IAM_ROLE {'default' if role == 'default' else self.literal(role)}{region} MANIFEST"
            f" GZIP CSV NULL AS {self.literal(own_null(file.name))} DATEFORMAT 'auto'"
            " TIMEFORMAT 'auto' COMPUPDATE OFF STATUPDATE OFF"
        )


def manifest_of(file: str) -> str:
    """The name of the manifest that names a file."""
    return f"{file}.manifest"
